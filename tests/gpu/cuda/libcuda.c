/* A stand-in for the NVIDIA driver's libcuda.so.1, so that gpu/cuda/driver.py runs over the real cuda-bindings without a
 * GPU. Device memory is host memory; a module is PTX text; launches go to a callback that the test sets. Needs no header
 * of CUDA's and none of libc's: gcc -shared -fPIC -nostdlib.
 */
typedef unsigned long size_t;
typedef int CUresult;
extern void *aligned_alloc(size_t, size_t);
extern void free(void *);
extern void *memcpy(void *, const void *, size_t);
extern void *memset(void *, int, size_t);
extern int strcmp(const char *, const char *);
extern char *strncpy(char *, const char *, size_t);
extern char *strstr(const char *, const char *);
extern char *strdup(const char *);
extern size_t strlen(const char *);

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500,
};

typedef CUresult (*launch_callback)(const char *kernel, unsigned grid, unsigned block, const void *args, size_t n_bytes);

static struct {
    int count, major, minor;
    size_t total, used, host;
    long objects; /* modules, streams and events that live */
    launch_callback launch;
    const char *failing;
    int failing_after;
    CUresult failing_with, sticky;
    int initialised, retained, current;
} fake = {.count = 1, .major = 9, .minor = 0, .total = 1ul << 30};

/* What the test sets and asks. */
void fake_reset(void) {
    fake.launch = 0, fake.failing = 0, fake.sticky = 0, fake.used = fake.host = 0, fake.objects = 0;
    fake.initialised = fake.retained = fake.current = 0;
}
void fake_device(int count, int major, int minor, size_t total) {
    fake.count = count, fake.major = major, fake.minor = minor, fake.total = total;
}
void fake_launch(launch_callback callback) { fake.launch = callback; }
/* The call number `after` (0: the next) of `function` fails; with sticky, everything after it too. */
void fake_failure(const char *function, int after, CUresult status, int sticky) {
    fake.failing = strdup(function), fake.failing_after = after, fake.failing_with = status;
    fake.sticky = sticky ? -1 : 0;
}
size_t fake_used(void) { return fake.used; }
size_t fake_host(void) { return fake.host; }
long fake_objects(void) { return fake.objects; }

static CUresult begin(const char *function) {
    if (fake.sticky > 0) return fake.sticky;
    if (fake.failing && !strcmp(fake.failing, function) && fake.failing_after-- == 0) {
        fake.failing = 0;
        if (fake.sticky < 0) fake.sticky = fake.failing_with;
        return fake.failing_with;
    }
    return SUCCESS;
}
#define BEGIN do { CUresult status = begin(__func__); if (status) return status; } while (0)
#define CONTEXT do { BEGIN; if (!fake.current) return INVALID_CONTEXT; } while (0)

/* A size in front of every allocation, so that freeing can be counted. */
static CUresult take(void **out, size_t n, size_t *counter, size_t limit) {
    if (n == 0) return INVALID_VALUE;
    if (limit && *counter + n > limit) return OUT_OF_MEMORY;
    char *at = aligned_alloc(256, (n + 511) / 256 * 256);
    if (!at) return OUT_OF_MEMORY;
    *(size_t *)at = n;
    *counter += n;
    memset(at + 256, 0xa5, n);
    *out = at + 256;
    return SUCCESS;
}
static CUresult give(void *at, size_t *counter) {
    if (!at) return INVALID_VALUE;
    *counter -= *(size_t *)((char *)at - 256);
    free((char *)at - 256);
    return SUCCESS;
}

CUresult cuInit(unsigned flags) {
    BEGIN;
    if (flags) return INVALID_VALUE;
    if (!fake.count) return NO_DEVICE;
    fake.initialised = 1;
    return SUCCESS;
}
CUresult cuDriverGetVersion(int *out) { BEGIN; *out = 13000; return SUCCESS; }
CUresult cuDeviceGetCount(int *out) { BEGIN; if (!fake.initialised) return NOT_INITIALIZED; *out = fake.count; return SUCCESS; }
CUresult cuDeviceGet(int *out, int ordinal) {
    BEGIN;
    if (ordinal < 0 || ordinal >= fake.count) return INVALID_DEVICE;
    *out = ordinal;
    return SUCCESS;
}
CUresult cuDeviceGetName(char *out, int n, int device) { BEGIN; strncpy(out, "Fake H200", n); return SUCCESS; }
CUresult cuDeviceGetUuid(void *out, int device) { BEGIN; memset(out, 0x11 + device, 16); return SUCCESS; }
CUresult cuDeviceTotalMem(size_t *out, int device) { BEGIN; *out = fake.total; return SUCCESS; }
CUresult cuDeviceGetAttribute(int *out, int attribute, int device) {
    BEGIN;
    if (attribute == 75) *out = fake.major;
    else if (attribute == 76) *out = fake.minor;
    else if (attribute == 16) *out = 2;
    else return INVALID_VALUE;
    return SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags(int device, unsigned flags) { BEGIN; return SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(void **out, int device) { BEGIN; fake.retained++; *out = &fake; return SUCCESS; }
CUresult cuDevicePrimaryCtxRelease(int device) { BEGIN; fake.current &= --fake.retained > 0; return SUCCESS; }
CUresult cuCtxSetCurrent(void *context) { BEGIN; fake.current = context == &fake; return SUCCESS; }

CUresult cuStreamCreate(void **out, unsigned flags) { CONTEXT; *out = strdup("stream"); fake.objects++; return SUCCESS; }
CUresult cuStreamDestroy(void *stream) { CONTEXT; free(stream); fake.objects--; return SUCCESS; }
CUresult cuStreamSynchronize(void *stream) { CONTEXT; return stream ? SUCCESS : INVALID_HANDLE; }
CUresult cuEventCreate(void **out, unsigned flags) { CONTEXT; *out = strdup("event"); fake.objects++; return SUCCESS; }
CUresult cuEventDestroy(void *event) { CONTEXT; free(event); fake.objects--; return SUCCESS; }
CUresult cuEventRecord(void *event, void *stream) { CONTEXT; return event && stream ? SUCCESS : INVALID_HANDLE; }
CUresult cuEventSynchronize(void *event) { CONTEXT; return event ? SUCCESS : INVALID_HANDLE; }

CUresult cuMemAlloc(size_t *out, size_t n) { CONTEXT; return take((void **)out, n, &fake.used, fake.total); }
CUresult cuMemFree(size_t at) { CONTEXT; return give((void *)at, &fake.used); }
CUresult cuMemAllocHost(void **out, size_t n) { CONTEXT; return take(out, n, &fake.host, 0); }
CUresult cuMemFreeHost(void *at) { CONTEXT; return give(at, &fake.host); }
CUresult cuMemGetInfo(size_t *left, size_t *total) {
    CONTEXT;
    *left = fake.total - fake.used, *total = fake.total;
    return SUCCESS;
}
CUresult cuMemcpyHtoDAsync(size_t to, const void *from, size_t n, void *stream) {
    CONTEXT;
    memcpy((void *)to, from, n);
    return SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void *to, size_t from, size_t n, void *stream) {
    CONTEXT;
    memcpy(to, (void *)from, n);
    return SUCCESS;
}
CUresult cuMemsetD8Async(size_t at, unsigned char value, size_t n, void *stream) {
    CONTEXT;
    memset((void *)at, value, n);
    return SUCCESS;
}

CUresult cuModuleLoadData(void **out, const char *image) {
    CONTEXT;
    if (!strstr(image, ".version")) return INVALID_IMAGE;
    *out = strdup(image);
    fake.objects++;
    return SUCCESS;
}
CUresult cuModuleUnload(void *module) { CONTEXT; free(module); fake.objects--; return SUCCESS; }
CUresult cuModuleGetFunction(void **out, void *module, const char *name) {
    CONTEXT;
    size_t n = strlen(name);
    for (const char *at = module; (at = strstr(at, ".entry ")); at++)
        if (!__builtin_strncmp(at + 7, name, n) && (at[7 + n] == '(' || at[7 + n] == ' ')) {
            *out = strdup(name); /* lives as long as the process, as few as kernels are */
            return SUCCESS;
        }
    return NOT_FOUND;
}
CUresult cuLaunchKernel(
    void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    void *stream, void **params, void **extra
) {
    CONTEXT;
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || !gx || !bx || bx > 1024 || shared || !stream || params || !extra)
        return INVALID_VALUE;
    if ((size_t)extra[0] != 1 || (size_t)extra[2] != 2 || extra[4]) return INVALID_VALUE;
    return fake.launch ? fake.launch(kernel, gx, bx, extra[1], *(size_t *)extra[3]) : SUCCESS;
}

#define ENTRY(name) {#name, (void *)name}
CUresult cuGetProcAddress(const char *name, void **out, int version, unsigned long flags, int *found);
static const struct { const char *name; void *function; } table[] = {
    ENTRY(cuInit), ENTRY(cuDriverGetVersion), ENTRY(cuDeviceGetCount), ENTRY(cuDeviceGet), ENTRY(cuDeviceGetName),
    ENTRY(cuDeviceGetUuid), ENTRY(cuDeviceTotalMem), ENTRY(cuDeviceGetAttribute), ENTRY(cuDevicePrimaryCtxSetFlags),
    ENTRY(cuDevicePrimaryCtxRetain), ENTRY(cuDevicePrimaryCtxRelease), ENTRY(cuCtxSetCurrent), ENTRY(cuStreamCreate),
    ENTRY(cuStreamDestroy), ENTRY(cuStreamSynchronize), ENTRY(cuEventCreate), ENTRY(cuEventDestroy),
    ENTRY(cuEventRecord), ENTRY(cuEventSynchronize), ENTRY(cuMemAlloc), ENTRY(cuMemFree), ENTRY(cuMemAllocHost),
    ENTRY(cuMemFreeHost), ENTRY(cuMemGetInfo), ENTRY(cuMemcpyHtoDAsync), ENTRY(cuMemcpyDtoHAsync),
    ENTRY(cuMemsetD8Async), ENTRY(cuModuleLoadData), ENTRY(cuModuleUnload), ENTRY(cuModuleGetFunction),
    ENTRY(cuLaunchKernel), ENTRY(cuGetProcAddress),
};
CUresult cuGetProcAddress(const char *name, void **out, int version, unsigned long flags, int *found) {
    *out = 0;
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name)) *out = table[i].function;
    if (found) *found = *out ? 0 : 1;
    return *out ? SUCCESS : NOT_FOUND;
}
CUresult cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long flags, int *found) {
    return cuGetProcAddress(name, out, version, flags, found);
}
