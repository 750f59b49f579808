/* A stand-in for NVIDIA's NVML: GPUs as the file $FAKE_NVML tells them, read anew at each call, so that a test can
   change them while an agent looks. Lines are "KEY.GPU VALUE"; a key that is not there is NOT_SUPPORTED.
   Types and codes: nvml.h of CUDA 13, as pynvml calls it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, TIMEOUT = 10, LOST = 15 };
static char devices[16];
static long told_xid[16];

static int ask(const char *key, long gpu, unsigned long long *value)
{
    char line[200], wanted[64], name[100];
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    int found = 0, lost = 0;
    if (!file) return INVALID;
    snprintf(wanted, sizeof wanted, "%s.%ld", key, gpu);
    snprintf(name, sizeof name, "lost.%ld", gpu);
    while (fgets(line, sizeof line, file)) {
        char *space = strchr(line, ' ');
        if (!space) continue;
        *space = 0;
        if (!strcmp(line, name)) lost = 1;
        if (!strcmp(line, wanted)) *value = strtoull(space + 1, NULL, 10), found = 1;
    }
    fclose(file);
    return lost ? LOST : found ? OK : NOT_SUPPORTED;
}

static int get(const char *key, void *device, unsigned *out)
{
    unsigned long long value = 0;
    int code = ask(key, (char *)device - devices, &value);
    *out = value;
    return code;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    unsigned long long value;
    return ask("count", 0, &value) == OK ? OK : 9; /* DRIVER_NOT_LOADED */
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code)
{
    return code == LOST ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : code == NOT_SUPPORTED ? "Not Supported" : "Error";
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.95.05"); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { unsigned long long v; int code = ask("count", 0, &v); *count = v; return code; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { *device = devices + i; return i < 16 ? OK : INVALID; }
int nvmlDeviceGetName(void *device, char *text, unsigned size)
{
    snprintf(text, size, "NVIDIA Fake %d", (int)((char *)device - devices));
    return OK;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
    rates[1] = 0;
    return get("utilization", device, rates);
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    memory[0] = 80ull << 30;
    return ask("memory_used", (char *)device - devices, memory + 2);
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out) { (void)sensor; return get("temperature", device, out); }
int nvmlDeviceGetPowerUsage(void *device, unsigned *out) { return get("power_mw", device, out); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out) { return get("power_limit_mw", device, out); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *out) { return get("power_default_mw", device, out); }
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *out) { return get(clock ? "clock_sm" : "clock", device, out); }
int nvmlDeviceGetMaxClockInfo(void *device, int clock, unsigned *out) { (void)clock; return get("clock_max", device, out); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *out) { return get("pcie_gen", device, out); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *out) { return get("pcie_width", device, out); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *out) { return get("pcie_gen_max", device, out); }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *out) { return get("pcie_width_max", device, out); }
/* Not here, as in a driver before 535: nvmlDeviceGetCurrentClocksEventReasons. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out)
{
    return ask("throttle", (char *)device - devices, out);
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *out)
{
    (void)type, (void)counter;
    return ask("ecc", (char *)device - devices, out);
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out)
{
    return ask("energy_mj", (char *)device - devices, out);
}

struct event { void *device; unsigned long long type, data; unsigned a, b; };
int nvmlEventSetCreate(void **set) { *set = devices; return OK; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    (void)device, (void)types, (void)set;
    return OK;
}
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms)
{
    (void)set, (void)timeout_ms;
    for (long i = 0; i < 16; i++) {
        unsigned long long xid = 0;
        int code = ask("xid", i, &xid);
        if ((code == OK || code == LOST) && xid && (long)xid != told_xid[i]) {
            told_xid[i] = xid;
            *event = (struct event){devices + i, 8, xid, 0, 0};
            return OK;
        }
    }
    return TIMEOUT;
}
