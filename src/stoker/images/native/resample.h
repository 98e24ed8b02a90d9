/* One image, from rows of pixels to rows of pixels: Pillow's resample, bit by bit. */

#ifndef STOKER_RESAMPLE_H
#define STOKER_RESAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* Not for other libraries of the process: a name that one of them has too would be taken from there. */
#pragma GCC visibility push(hidden)

#define PIXEL_NBYTES 4 /* red, green, blue and a byte that nobody reads, as Pillow keeps RGB */

enum filter { BOX, BILINEAR, BICUBIC, LANCZOS, NUM_FILTERS };

/* What is resampled: a part of an image, `width` x `height` pixels from (left, top) on, which may lie outside of
 * the rows but for what is read of it (`resample_reach`), to `to_width` x
 * `to_height` pixels. Of these the part from (want_x, want_y) on is wanted. */
struct resample {
    const uint8_t *const *rows;
    int rows_width, rows_height; /* pixels of a row that may be read; rows */
    void (*pull)(void *from, int num); /* if not NULL: is called before one of the first `num` rows is read */
    void *from;
    int left, top, width, height;
    int to_width, to_height;
    int want_x, want_y, want_width, want_height;
    int filter;
    int is_vertical_first;
    int simd; /* the most that may be used: kernels.h */
};

/* What of the part is read. num_at_once: rows that are there at the same time. */
struct reach {
    int column, num_columns, row, num_rows;
    int num_at_once;
};

/* Takes a row of `want_width` pixels, the rows from the top down. */
typedef void (*row_sink)(void *context, int y, const uint8_t *row);

/* The bytes of scratch memory that `resample` takes; 0 if it will not do it. */
size_t resample_scratch_nbytes(const struct resample *job);
/* Returns 0, or -1 if `resample` will not do it. */
int resample_reach(const struct resample *job, struct reach *reach);
/* scratch: at 64 bytes. Returns 0, or -1 if nothing was done. */
int resample(const struct resample *job, void *scratch, row_sink sink, void *context);
extern double (*the_sine)(double); /* the C library's, for LANCZOS */

#pragma GCC visibility pop
#endif
