/* Flags through argp. It never prints an error or exits itself: what it cannot parse becomes one line that names the flag. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_util.h"

#define KEY_HELP 'h'

typedef struct {
    const dlab_cmd_cli *cli;
    void *opts;
    dlab_error *err;
    dlab_status st;
    bool helped;
} parse_state;

#define MAX_FLAGS 64

static const char *nearest_flag(const struct argp_option *options, const char *word)
{
    const char *names[MAX_FLAGS + 1];
    size_t n = 0;
    for (const struct argp_option *o = options; n < MAX_FLAGS && o->name; o++) {
        if (!(o->flags & OPTION_HIDDEN)) names[n++] = o->name;
    }
    names[n] = NULL;
    return dlab_nearest(word, names);
}

/* argp does not tell which word it stumbled over: it is the last one taken. */
static dlab_status bad_flag(const parse_state *p, const struct argp_state *s)
{
    int at = s->next > 0 ? s->next - 1 : 0;
    if (at < s->argc - 1 && s->argv[at][0] != '-') at++;
    const char *flag = s->argv[at], *word = flag;
    while (*word == '-') word++;
    size_t len = strcspn(word, "=");
    for (const struct argp_option *o = p->cli->options; o->name; o++) {
        bool is = (strlen(o->name) == len && strncmp(o->name, word, len) == 0) ||
                  (len == 1 && o->key == (unsigned char)*word);
        if (is && o->arg) return DLAB_FAIL(p->err, DLAB_EUSAGE, "%s: needs a value, %s", flag, o->arg);
        if (is) return DLAB_FAIL(p->err, DLAB_EUSAGE, "%s: takes no value", flag);
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), word);
    const char *near = nearest_flag(p->cli->options, name);
    if (near) {
        return DLAB_FAIL(p->err, DLAB_EUSAGE, "unknown flag %s; did you mean %s%s?", flag,
                         p->cli->long_only ? "-" : "--", near);
    }
    return DLAB_FAIL(p->err, DLAB_EUSAGE, "unknown flag %s; `dlab %s --help` has the list", flag, p->cli->name);
}

/* Words of text, in lines of at most `width`. */
static void print_wrapped(const char *text, int width)
{
    int at = 0;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at > 0 && at + 1 + n > width) {
            putchar('\n');
            at = 0;
        }
        at += printf(at > 0 ? " %.*s" : "%.*s", n, text);
        text += n;
        text += strspn(text, " ");
    }
    putchar('\n');
}

/* argp's own help writes --ctk where people type -ctk, and reflows the examples. */
static void show_help(const dlab_cmd_cli *cli)
{
    printf("Usage: dlab %s [FLAG...]%s%s\n\n", cli->name, cli->args ? " " : "", cli->args ? cli->args : "");
    print_wrapped(cli->about, 100);
    printf("\nFlags:\n");
    for (const struct argp_option *o = cli->options; o->name; o++) {
        if (o->flags & OPTION_HIDDEN) continue;
        char names[96];
        const struct argp_option *alias = o[1].name && (o[1].flags & OPTION_ALIAS) ? o + 1 : NULL;
        /* llama-bench's short words have one dash: -ctk, -npl */
        bool word = cli->long_only && strlen(o->name) <= 3 && o->key != DLAB_CMD_KEY_SET;
        const char *dash = word ? "-" : "--";
        if (o->key < DLAB_CMD_KEY)
            snprintf(names, sizeof names, "-%c, --%s", o->key, o->name);
        else
            snprintf(names, sizeof names, "%s%s%s%s", dash, o->name, alias ? ", --" : "", alias ? alias->name : "");
        size_t used = strlen(names);
        if (o->arg) snprintf(names + used, sizeof names - used, " %s", o->arg);
        printf("  %-29s %s\n", names, o->doc);
        if (alias) o++;
    }
    printf("  %-29s %s\n\nExample:\n%s\n", "-h, --help", "this text", cli->example);
}

static error_t on_key(int key, char *arg, struct argp_state *s)
{
    parse_state *p = s->input;
    if (key == ARGP_KEY_ERROR) {
        if (p->st == DLAB_OK) p->st = bad_flag(p, s);
        return 0;
    }
    if (key == KEY_HELP) {
        show_help(p->cli);
        p->helped = true;
        return ECANCELED;
    }
    if (key == ARGP_KEY_ARG && !p->cli->args) {
        p->st = DLAB_FAIL(p->err, DLAB_EUSAGE, "unexpected argument \"%s\": this command takes flags only", arg);
        return EINVAL;
    }
    bool ours = key == ARGP_KEY_ARG || (key > 0 && key < 0x10000);
    if (!ours) return ARGP_ERR_UNKNOWN;
    p->st = p->cli->set(key, arg, p->opts, p->err);
    return p->st == DLAB_OK ? 0 : EINVAL;
}

dlab_status dlab_cmd_parse(const dlab_cmd_cli *cli, int argc, char **argv, void *opts, bool *helped, dlab_error *err)
{
    struct argp_option options[MAX_FLAGS + 2] = {0};
    size_t n = 0;
    while (n < MAX_FLAGS && cli->options[n].name) {
        options[n] = cli->options[n];
        n++;
    }
    options[n] = (struct argp_option){"help", KEY_HELP, NULL, 0, NULL, 0};
    struct argp argp = {.options = options, .parser = on_key};
    parse_state p = {.cli = cli, .opts = opts, .err = err, .st = DLAB_OK};
    unsigned flags = ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP | (cli->long_only ? ARGP_LONG_ONLY : 0);
    error_t e = argp_parse(&argp, argc, argv, flags, NULL, &p);
    *helped = p.helped;
    if (p.helped || p.st != DLAB_OK) return p.helped ? DLAB_OK : p.st;
    return e ? DLAB_FAIL(err, DLAB_EUSAGE, "cannot read the flags: %s", strerror(e)) : DLAB_OK;
}

dlab_status dlab_cmd_int(const char *flag, const char *text, int64_t min, int64_t max, int64_t *out, dlab_error *err)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    bool digits = *text == '-' ? text[1] >= '0' && text[1] <= '9' : *text >= '0' && *text <= '9';
    if (!digits || *end) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: \"%s\" is not a whole number", flag, text);
    if (errno == ERANGE || v < min || v > max) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: %s is out of range, expected %lld to %lld", flag, text, (long long)min,
                         (long long)max);
    }
    *out = v;
    return DLAB_OK;
}

/* One number of a list, up to where it stops. */
static dlab_status list_number(const char *flag, const char *whole, const char **at, int64_t *out, dlab_error *err)
{
    char *end = NULL;
    errno = 0;
    if (**at < '0' || **at > '9') {
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "%s: \"%s\" is not a list of numbers; write 512, 128,256, 1-8, 1-9+2 or 1-64*2", flag, whole);
    }
    long long v = strtoll(*at, &end, 10);
    if (errno == ERANGE) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: a number in \"%s\" is too large", flag, whole);
    *at = end;
    *out = v;
    return DLAB_OK;
}

static dlab_status list_range(const char *flag, const char *whole, const char **at, int64_t r[3], char *op,
                              dlab_error *err)
{
    DLAB_TRY(list_number(flag, whole, at, &r[0], err));
    r[1] = r[0];
    r[2] = 1;
    *op = '+';
    if (**at != '-') return DLAB_OK;
    ++*at;
    DLAB_TRY(list_number(flag, whole, at, &r[1], err));
    if (**at == '+' || **at == '*') {
        *op = *(*at)++;
        DLAB_TRY(list_number(flag, whole, at, &r[2], err));
    }
    bool stuck = *op == '+' ? r[2] == 0 : r[2] < 2 || r[0] == 0;
    if (r[1] < r[0]) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: the range \"%s\" is empty", flag, whole);
    if (stuck && r[1] > r[0]) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: the range \"%s\" never ends", flag, whole);
    return DLAB_OK;
}

dlab_status dlab_cmd_int_list(const char *flag, const char *text, int64_t min, int64_t max, int64_t *list, size_t *n,
                              size_t cap, dlab_error *err)
{
    const char *at = text;
    for (;;) {
        int64_t r[3] = {0};
        char op = 0;
        DLAB_TRY(list_range(flag, text, &at, r, &op, err));
        if (r[0] < min || r[1] > max) {
            return DLAB_FAIL(err, DLAB_EUSAGE, "%s: \"%s\" is out of range, expected %lld to %lld", flag, text,
                             (long long)min, (long long)max);
        }
        for (int64_t v = r[0]; v <= r[1];) {
            if (*n == cap) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: more than %zu values", flag, cap);
            list[(*n)++] = v;
            if (op == '+' ? v > INT64_MAX - r[2] : r[2] && v > INT64_MAX / r[2]) break;
            int64_t next = op == '+' ? v + r[2] : v * r[2];
            if (next <= v) break;
            v = next;
        }
        if (!*at) return DLAB_OK;
        if (*at++ != ',') {
            return DLAB_FAIL(err, DLAB_EUSAGE,
                             "%s: \"%s\" is not a list of numbers; write 512, 128,256, 1-8, 1-9+2 or 1-64*2", flag,
                             text);
        }
    }
}

dlab_status dlab_cmd_choice(const char *flag, const char *text, const char *const *words, const char **out,
                            dlab_error *err)
{
    char list[256] = "";
    for (size_t i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = words[i];
            return DLAB_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    }
    return DLAB_FAIL(err, DLAB_EUSAGE, "%s: \"%s\" is not known, expected one of %s", flag, text, list);
}

dlab_status dlab_cmd_one_arg(const char *what, const char *arg, const char **out, dlab_error *err)
{
    if (*out) return DLAB_FAIL(err, DLAB_EUSAGE, "one %s is expected, but \"%s\" follows \"%s\"", what, arg, *out);
    *out = arg;
    return DLAB_OK;
}
