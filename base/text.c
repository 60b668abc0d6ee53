#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_tail(unsigned char c) { return (c & 0xC0) == 0x80; }

/* Bytes of the character at s; 0 if it is none (Unicode 15, table 3-7: no overlong form, no surrogate). */
static size_t utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4 || !is_tail(s[1])) return 0;
    if (s[0] < 0xE0) return 2;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || !is_tail(s[2])) return 0;
    if (s[0] < 0xF0) return 3;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F) || !is_tail(s[3])) return 0;
    return 4;
}

void dlab_text_copy(char *dst, size_t size, const char *src)
{
    size_t n = 0;
    while (*src) {
        size_t len = utf8_length((const unsigned char *)src), take = len ? len : 1;
        if (n + take >= size) break;
        if (len)
            memmove(dst + n, src, len);
        else
            dst[n] = '?';
        n += take;
        src += take;
    }
    dst[n] = 0;
}

void dlab_text_bytes(double bytes, char *buf, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t u = 0;
    while (bytes >= 1024 && u + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        u++;
    }
    snprintf(buf, size, u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
}

void dlab_last_line_add(dlab_last_line *l, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(l->partial);
        if (bytes[i] == '\n') {
            if (used > 0) memcpy(l->whole, l->partial, used + 1);
            l->partial[0] = 0;
        } else if (used + 1 < sizeof l->partial) {
            l->partial[used] = (unsigned char)bytes[i] < ' ' ? ' ' : bytes[i];
            l->partial[used + 1] = 0;
        }
    }
}

const char *dlab_last_line_text(const dlab_last_line *l) { return *l->partial ? l->partial : l->whole; }
