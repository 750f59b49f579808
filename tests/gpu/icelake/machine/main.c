/* Runs every case of cases.bin and tells the serial port which results differ. The file's layout is `cases.Case.packed`. */
#include "table.h" /* functions[], made by `cases` */

typedef unsigned long word;
enum { MAX_OPERANDS = 10, MAX_BYTES = 1 << 14 };
static unsigned char operands[MAX_OPERANDS][MAX_BYTES] __attribute__((aligned(64)));

extern const unsigned char cases[];
__asm__(".section .rodata\n.balign 64\n.global cases\ncases:\n.incbin \"cases.bin\"\n.text\n");

/* The compiler may call these. */
void *memcpy(void *to, const void *from, word n) {
    for (word i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
void *memset(void *to, int value, word n) {
    for (word i = 0; i < n; i++) ((char *)to)[i] = (char)value;
    return to;
}

static void out(unsigned short port, unsigned char value) { __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port)); }
static unsigned char in(unsigned short port) {
    unsigned char value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static void tell(const char *text) {
    for (; *text; text++) {
        while (!(in(0x3FD) & 0x20));
        out(0x3F8, *text);
    }
}
static void tell_number(word n) {
    char digits[21] = {0};
    int i = 20;
    do digits[--i] = '0' + n % 10; while (n /= 10);
    tell(digits + i);
}
static word take(const unsigned char **at) {
    word value;
    memcpy(&value, *at, 8);
    *at += 8;
    return value;
}

void run_cases(void) {
    const unsigned char *at = cases;
    word n = take(&at), wrong = 0;
    out(0x3FB, 3); /* eight data bits */
    for (word i = 0; i < n; i++) {
        word function = take(&at), returns = take(&at), result = take(&at), n_integers = take(&at), integers[4];
        for (word k = 0; k < n_integers; k++) integers[k] = take(&at);
        word n_operands = take(&at), lengths[MAX_OPERANDS], *pointers[MAX_OPERANDS];
        const unsigned char *wanted[MAX_OPERANDS];
        for (word k = 0; k < n_operands; k++) {
            word refs_into = take(&at); /* the operand that these words point into, plus one; 0: they are no pointers */
            lengths[k] = take(&at);
            memcpy(operands[k], at, lengths[k]);
            wanted[k] = at + lengths[k];
            at = wanted[k] + lengths[k];
            pointers[k] = (word *)operands[k];
            if (refs_into) {
                for (word j = 0; j < lengths[k] / 8; j++) pointers[k][j] += 2 * (word)operands[refs_into - 1];
                wanted[k] = 0;
            }
        }
        int bad = (functions[function](pointers, (long *)integers) != result) & (int)returns;
        for (word k = 0; k < n_operands; k++)
            for (word j = 0; wanted[k] && j < lengths[k]; j++) bad |= operands[k][j] != wanted[k][j];
        if (bad) {
            wrong++;
            tell("WRONG "), tell(names[function]), tell(" in case "), tell_number(i), tell("\n");
        }
    }
    tell("DONE "), tell_number(n), tell(" cases, "), tell_number(wrong), tell(" wrong\n");
}
