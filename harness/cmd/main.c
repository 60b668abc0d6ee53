/* The program: finds the command, runs it, prints its error as one line. Nothing else prints an error or exits. */
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "dlab_version.h"
#include "harness/cmd/cmd_util.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

static void on_pipe(int sig) { (void)sig; }

/* A second Ctrl-C ends the program at once; SIGHUP does not, since a terminal that goes and its shell each send one. A signal
 * that our parent had us ignore (nohup, a background job) stays so, but for SIGCHLD: children whose end is ignored leave no
 * exit code. SIGPIPE gets a handler rather than SIG_IGN, which programs that we start would inherit. */
static void install_signals(void)
{
    struct sigaction act = {.sa_handler = on_interrupt}, usual = {.sa_handler = SIG_DFL};
    sigemptyset(&act.sa_mask);
    sigemptyset(&usual.sa_mask);
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        struct sigaction before;
        bool ignored = sigaction(ending[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        act.sa_flags = ending[i] == SIGHUP ? 0 : (int)SA_RESETHAND;
        if (!ignored) sigaction(ending[i], &act, NULL);
    }
    sigaction(SIGCHLD, &usual, NULL);
    struct sigaction pipe_act = {.sa_handler = on_pipe, .sa_flags = SA_RESTART};
    sigemptyset(&pipe_act.sa_mask);
    sigaction(SIGPIPE, &pipe_act, NULL);
}

static const dlab_command *find(const char *name)
{
    for (size_t i = 0; dlab_commands[i]; i++) {
        if (strcmp(dlab_commands[i]->name, name) == 0) return dlab_commands[i];
    }
    return NULL;
}

static void help(void)
{
    char docs[PATH_MAX];
    printf("dlab: a laboratory for LLM inference strategies\n\nUsage: dlab COMMAND [OPTION...]\n\nCommands:\n");
    for (size_t i = 0; dlab_commands[i]; i++) {
        if (!dlab_commands[i]->internal) printf("  %-9s %s\n", dlab_commands[i]->name, dlab_commands[i]->summary);
    }
    printf("\nEach command has --help. `dlab --version` says what this program was built from.\n\n"
           "Example:\n  dlab bench -m synthetic:tiny -p 64 -n 16\n"
           "  dlab run experiments/quickstart.yaml\n\n");
    if (dlab_cmd_share_path("docs", docs, sizeof docs)) {
        printf("Documentation: %s, README.md; every key of an experiment file: dlab list --docs\n", docs);
    } else {
        printf("Documentation: README.md and docs/ of the source; every key of an experiment file: dlab list --docs\n");
    }
}

static void gnuplot_version(char *buf, size_t size)
{
    snprintf(buf, size, "not found (plots are written as .gp and .dat only)");
    FILE *f = popen("gnuplot --version 2>/dev/null", "r"); /* NOLINT(cert-env33-c): a fixed line */
    if (!f) return;
    char line[128];
    if (fgets(line, sizeof line, f) && strncmp(line, "gnuplot ", 8) == 0) {
        line[strcspn(line, "\n")] = 0;
        snprintf(buf, size, "%s", line + 8);
    }
    pclose(f);
}

static void version(void)
{
    unsigned major = 0, minor = 0, release = 0;
    char gnuplot[160];
    H5get_libversion(&major, &minor, &release);
    gnuplot_version(gnuplot, sizeof gnuplot);
    printf("dlab %s\nrevision: %s%s\ncompiler: %s (%s)\nhdf5: %u.%u.%u\ngnuplot: %s\n", DLAB_VERSION, DLAB_GIT_REVISION,
           DLAB_GIT_DIRTY ? " (modified)" : "", DLAB_COMPILER, DLAB_BUILD_TYPE, major, minor, release, gnuplot);
}

static void print_error(const char *command, const dlab_error *err)
{
    char msg[DLAB_ERROR_MSG + PATH_MAX];
    dlab_cmd_error_text(err, msg, sizeof msg);
    fprintf(stderr, "dlab%s%s: %s\n", command ? " " : "", command ? command : "", msg);
}

static dlab_status unknown_command(const char *name, dlab_error *err)
{
    const char *names[64];
    size_t n = 0;
    for (size_t i = 0; dlab_commands[i] && n < 63; i++) {
        if (!dlab_commands[i]->internal) names[n++] = dlab_commands[i]->name;
    }
    names[n] = NULL;
    static const char *const planned[] = {"ab",    "gate",  "report", "compare", "history",
                                          "check", "merge", "advise", "validate"};
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++) {
        if (strcmp(name, planned[i]) == 0) {
            return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s is not built in this version; `dlab --help` lists what is", name);
        }
    }
    const char *what = *name == '-' ? "flag" : "command", *near = *name == '-' ? NULL : dlab_nearest(name, names);
    if (near) return DLAB_FAIL(err, DLAB_EUSAGE, "unknown %s \"%s\"; did you mean %s?", what, name, near);
    return DLAB_FAIL(err, DLAB_EUSAGE, "unknown %s \"%s\"; `dlab --help` lists what there is", what, name);
}

static dlab_status dispatch(int argc, char **argv, int *code, const char **command, dlab_error *err)
{
    if (argc < 2) return DLAB_FAIL(err, DLAB_EUSAGE, "a command is expected; `dlab --help` lists them");
    bool wants_help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    if (wants_help || (strcmp(argv[1], "help") == 0 && argc == 2)) {
        help();
        return DLAB_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        version();
        return DLAB_OK;
    }
    char help_flag[] = "--help", *help_argv[] = {argv[argc > 2 ? 2 : 1], help_flag, NULL};
    bool help_of = strcmp(argv[1], "help") == 0;
    const dlab_command *c = find(help_of ? argv[2] : argv[1]);
    if (!c) return unknown_command(help_of ? argv[2] : argv[1], err);
    *command = c->name;
    dlab_cmd_ctx ctx = {.interrupted = &interrupted, .exe = argv[0]};
    if (help_of) return c->run(&ctx, 2, help_argv, code, err);
    return c->run(&ctx, argc - 1, argv + 1, code, err);
}

int main(int argc, char **argv)
{
    install_signals();
    dlab_error err = {0};
    int code = 0;
    const char *command = NULL;
    dlab_status st = dispatch(argc, argv, &code, &command, &err);
    if (st == DLAB_OK) st = dlab_cmd_flush(&err);
    if (st != DLAB_OK) {
        fflush(stdout);
        err.code = st;
        print_error(command, &err);
        return dlab_cmd_exit_code(st);
    }
    return code;
}
