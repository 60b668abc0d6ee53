/* Text that must fit a field, and figures as a person reads them. */
#ifndef DLAB_BASE_TEXT_H
#define DLAB_BASE_TEXT_H

#include <stddef.h>

/* Copies src to dst [size ≥ 1] as valid UTF-8: cut before a character that does not fit whole; bytes that are no UTF-8
 * become question marks. dst may be src. */
void dlab_text_copy(char *dst, size_t size, const char *src);
/* A count of bytes: "512 B", "1.5 MiB". */
void dlab_text_bytes(double bytes, char *buf, size_t size);

/* The last line of a stream that was not empty, with blanks for control characters. Starts zeroed. */
typedef struct {
    char whole[256], partial[256];
} dlab_last_line;
void dlab_last_line_add(dlab_last_line *l, const char *bytes, size_t n);
/* An unfinished line counts. "" when nothing came. */
const char *dlab_last_line_text(const dlab_last_line *l);

#endif
