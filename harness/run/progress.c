#include "harness/run/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_CELLS 24

void dlab_progress_init(dlab_progress *p, bool on, size_t total)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    *p = (dlab_progress){.to = on ? stderr : NULL, .total = total, .left_s = -1};
    p->bar = on && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    p->color = p->bar && !(no_color && *no_color);
}

void dlab_progress_duration(double s, char *buf, size_t size)
{
    if (s < 0) s = 0;
    if (s < 99.95) {
        snprintf(buf, size, s < 9.995 ? "%.2f s" : "%.1f s", s);
    } else if (s < 5970) {
        long whole = (long)(s + 0.5);
        snprintf(buf, size, "%ld min %02ld s", whole / 60, whole % 60);
    } else {
        long minutes = (long)(s / 60 + 0.5);
        snprintf(buf, size, "%ld h %02ld min", minutes / 60, minutes % 60);
    }
}

static void left_text(const dlab_progress *p, char *buf, size_t size)
{
    char time[32];
    *buf = 0;
    if (p->left_s < 0 || p->done >= p->total) return;
    dlab_progress_duration(p->left_s, time, sizeof time);
    snprintf(buf, size, ", about %s left", time);
}

static int columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

/* How many bytes of text fit into that many columns, taking each UTF-8 character as one. */
static int fit(const char *text, int cells)
{
    int n = 0;
    for (; text[n]; n++) {
        bool begins = ((unsigned char)text[n] & 0xc0) != 0x80;
        if (begins && cells-- == 0) break;
    }
    return n;
}

static void draw(const dlab_progress *p)
{
    char bar[BAR_CELLS + 1], left[64], text[512];
    if (!p->bar) return;
    size_t full = p->total ? p->done * BAR_CELLS / p->total : BAR_CELLS;
    for (size_t i = 0; i < BAR_CELLS; i++) bar[i] = i < full ? '#' : '.';
    bar[BAR_CELLS] = 0;
    left_text(p, left, sizeof left);
    snprintf(text, sizeof text, " %zu/%zu%s  %s  %s", p->done, p->total, left, p->phase, p->label);
    fprintf(p->to, "\r%s[%s]%s%.*s\033[K", p->color ? "\033[32m" : "", bar, p->color ? "\033[0m" : "",
            fit(text, columns() - BAR_CELLS - 3), text);
    fflush(p->to);
}

static void clear(const dlab_progress *p)
{
    if (p->bar) fprintf(p->to, "\r\033[K");
}

void dlab_progress_run(dlab_progress *p, const char *label, int32_t repeat, size_t done, double left_s)
{
    snprintf(p->label, sizeof p->label, "%s, repeat %d", label, repeat + 1);
    snprintf(p->phase, sizeof p->phase, "start");
    p->done = done;
    p->left_s = left_s;
    draw(p);
}

void dlab_progress_phase(dlab_progress *p, const char *phase)
{
    snprintf(p->phase, sizeof p->phase, "%s", phase);
    draw(p);
}

void dlab_progress_ended(dlab_progress *p, const char *status, const char *reason, double took_s, size_t done,
                         double left_s)
{
    char took[32], left[64];
    p->done = done;
    p->left_s = left_s;
    bool good = strcmp(status, "ok") == 0;
    if (p->to && (!p->bar || !good)) {
        dlab_progress_duration(took_s, took, sizeof took);
        left_text(p, left, sizeof left);
        clear(p);
        fprintf(p->to, "[%zu/%zu] %s: %s in %s%s%s%s%s\n", done, p->total, p->label, status, took, *reason ? " (" : "",
                reason, *reason ? ")" : "", p->bar ? "" : left);
    }
    draw(p);
}

void dlab_progress_note(dlab_progress *p, const char *text)
{
    if (!p->to) return;
    clear(p);
    fprintf(p->to, "%s\n", text);
    draw(p);
}

void dlab_progress_finish(dlab_progress *p)
{
    if (!p->to) return;
    clear(p);
    fflush(p->to);
}
