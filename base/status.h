/* Status codes and the error that travels with them.
 *
 * Every function that can fail returns a dlab_status and takes a `dlab_error *err` last (NULL is allowed). The first
 * DLAB_FAIL fills the error with code, place and message; callers forward it with DLAB_TRY and may put context in
 * front with dlab_error_prefix. Only `main` prints an error or exits. */
#ifndef DLAB_BASE_STATUS_H
#define DLAB_BASE_STATUS_H

#include <stdarg.h>

/* name, text shown to people and stored in records */
#define DLAB_STATUS_LIST(X)                                                                                            \
    X(OK, "ok")                                                                                                        \
    X(EUSAGE, "wrong use")         /* a flag, key or argument that makes no sense */                                   \
    X(EFORMAT, "bad input")        /* a file whose content is not what it should be */                                 \
    X(EIO, "input/output error")   /* the system refused to read or write */                                           \
    X(ENOTBUILT, "not built")      /* known, wanted, but not in this program */                                        \
    X(EIMPOSSIBLE, "impossible")   /* a combination that cannot work; a point becomes `skipped` */                     \
    X(EOOM, "out of memory")       /* an accounted pool or the system refused an allocation */                         \
    X(EFULL, "cache full")         /* a KV store has no place left: fewer sequences at once, or preempt one */         \
    X(EINTERRUPTED, "interrupted") /* Ctrl-C or SIGTERM */                                                             \
    X(ETIMEOUT, "timed out")                                                                                           \
    X(EINTERNAL, "internal error") /* a bug of ours */

typedef enum {
#define DLAB_STATUS_ENUM(name, text) DLAB_##name,
    DLAB_STATUS_LIST(DLAB_STATUS_ENUM)
#undef DLAB_STATUS_ENUM
        DLAB_STATUS_N
} dlab_status;

#define DLAB_ERROR_MSG 640

typedef struct {
    dlab_status code;
    const char *file; /* source file and line of the first failure */
    int line;
    char msg[DLAB_ERROR_MSG]; /* UTF-8, whatever a file's name had in it */
} dlab_error;

/* "ok", "bad input", …; never NULL. */
const char *dlab_status_text(dlab_status s);
/* "OK", "EFORMAT", …; never NULL. */
const char *dlab_status_name(dlab_status s);

dlab_status dlab_error_set(dlab_error *err, dlab_status code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Puts "text: " in front of the message (cut at its end if too long); returns err's code. */
dlab_status dlab_error_prefix(dlab_error *err, dlab_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* return DLAB_FAIL(err, DLAB_EFORMAT, "%s: …", path); */
#define DLAB_FAIL(err, code, ...) dlab_error_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)
#define DLAB_TRY(expr)                                                                                                 \
    do {                                                                                                               \
        dlab_status try_status_ = (expr);                                                                              \
        if (try_status_ != DLAB_OK) return try_status_;                                                                \
    } while (0)
/* In functions that own things: `DLAB_TRY_DONE(st, expr)` sets st and jumps to `done:`. */
#define DLAB_TRY_DONE(st, expr)                                                                                        \
    do {                                                                                                               \
        (st) = (expr);                                                                                                 \
        if ((st) != DLAB_OK) goto done;                                                                                \
    } while (0)

#endif
