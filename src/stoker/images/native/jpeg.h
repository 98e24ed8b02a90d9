/* What jpeg.c uses of libjpeg: the binary interface of its version 6b, which libjpeg-turbo keeps by
 * default and Pillow's wheels are built with. The library itself is the one that Pillow has loaded. */

#ifndef STOKER_JPEG_H
#define STOKER_JPEG_H

#include <stddef.h>
#include <stdint.h>

#define ABI_VERSION 62
#define DECOMPRESS_NBYTES 632 /* of the whole struct; libjpeg refuses another size */

enum { COLOR_YCC = 3, COLOR_RGBX = 7 };

struct decompress;

struct error_manager {
    void (*error_exit)(struct decompress *);
    void (*emit_message)(struct decompress *, int level);
    void (*output_message)(struct decompress *);
    void (*format_message)(struct decompress *, char *);
    void (*reset)(struct decompress *);
    int code;
    union {
        int numbers[8];
        char text[80];
    } parameters;
    int trace_level;
    long num_warnings;
    const char *const *messages;
    int last_message;
    const char *const *more_messages;
    int first_more, last_more;
};

struct source_manager {
    const uint8_t *next;
    size_t num_left;
    void (*begin)(struct decompress *);
    int (*fill)(struct decompress *);
    void (*skip)(struct decompress *, long);
    int (*resync)(struct decompress *, int);
    void (*end)(struct decompress *);
};

/* The fields that are looked at, in their places; what follows is libjpeg's own. */
struct decompress {
    struct error_manager *error;
    void *memory, *progress, *client;
    int is_decompressor, state;
    struct source_manager *source;
    unsigned width, height;
    int num_components, color;
    int to_color;
    unsigned scale_num, scale_denom;
    double gamma;
    int is_buffered, is_raw, dct, is_fancy, is_smoothed;
    int is_quantized, dither, is_two_pass, num_colors, one_pass, external, two_pass;
    unsigned to_width, to_height;
    int to_components, components, num_best_rows;
    int num_used_colors;
    void *map;
    unsigned next_row;
};

union decompress_room {
    struct decompress public;
    char whole[DECOMPRESS_NBYTES];
};

/* libjpeg's functions, as their addresses are found in the library that Pillow has loaded. */
struct libjpeg {
    struct error_manager *(*std_error)(struct error_manager *);
    void (*create)(struct decompress *, int version, size_t nbytes);
    int (*read_header)(struct decompress *, int needs_image);
    int (*start)(struct decompress *);
    unsigned (*read_rows)(struct decompress *, uint8_t **rows, unsigned max_rows);
    void (*crop)(struct decompress *, unsigned *left, unsigned *width);
    unsigned (*skip_rows)(struct decompress *, unsigned num);
    int (*finish)(struct decompress *);
    void (*destroy)(struct decompress *);
    int (*resync)(struct decompress *, int);
};

#pragma GCC visibility push(hidden)

/* A part of a file that is being decoded, `width` x `height` pixels from (left, top) on. rows: where each of its
 * rows goes to, which may be where one before it went to; room: pixels of a row. begin: where in its row the part
 * begins, for libjpeg begins at a whole block; num: pixels of a row that were decoded. */
struct jpeg_part {
    int left, top, width, height;
    uint8_t **rows;
    int room;
    int begin, num;
    int num_pulled; /* rows */
    const struct libjpeg *lib;
    struct decompress *of;
};

#define MARGIN 16 /* pixels left and right of a part: chroma is interpolated between its neighbours */
/* Beside a part: margins, and what makes whole blocks of them, of which the widest are of 4 x 8 pixels. */
#define ROOM_PIXELS (2 * MARGIN + 4 * 8)

/* Uses the rows, which it pulls. Returns 0; anything else is returned by `jpeg_decode`. */
typedef int (*part_user)(void *context, struct jpeg_part *part);
/* Decode the rows of a part up to `num`. Does not return if that fails. */
void jpeg_pull(void *part, int num);
/* Decode a part of a file of this shape. Returns -1 if Pillow is to decode it: then what the rows were used
 * for holds anything. */
int jpeg_decode(
    const struct libjpeg *lib, const uint8_t *file, size_t nbytes, const int *shape,
    struct jpeg_part *part, part_user use, void *context
);

#pragma GCC visibility pop
#endif
