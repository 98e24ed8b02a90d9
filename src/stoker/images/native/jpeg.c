/* Decode JPEG files, or a part of one, by the libjpeg that Pillow has loaded.
 *
 * Pillow hands libjpeg the file in pieces and unpacks each row; here libjpeg has the whole file, and
 * writes pixels as Pillow keeps them. What lies below a part is not decoded, what lies above or beside
 * it only as far as the format demands.
 *
 * Promise: the pixels are those of a whole decoding by Pillow, if 0 is returned. On any error, and on
 *   any warning, -1 is: then Pillow is to decode the file. Nothing is read beyond the file: where it ends too
 *   early that is an error, never an end that is made up.
 * Ban: no allocation of ours, so that nothing is lost when libjpeg leaves by error_exit.
 */

#include "jpeg.h"

#include <limits.h>
#include <setjmp.h>
#include <string.h>

#define PIXEL_NBYTES 4

/* ---- markers */

enum { SOF0 = 0xc0, DHT = 0xc4, RST0 = 0xd0, RST7 = 0xd7, SOI = 0xd8, EOI = 0xd9, SOS = 0xda, DQT = 0xdb,
       DRI = 0xdd, COM = 0xfe, APP0 = 0xe0, APP15 = 0xef };

#define MAX_SIDE 65500 /* libjpeg's JPEG_MAX_DIMENSION */
#define MAX_BLOCKS 10   /* of an MCU, all components together */
#define MAX_SYMBOL 15   /* of a table for DC differences: their number of bits */

/* Whether a frame header is of a baseline image of 8 bits, of one or three components whose sampling libjpeg
 * knows. Its shape, and the quantizers that it needs, are returned. */
static int is_sound_frame(const uint8_t *body, size_t length, int *shape, unsigned *quantizers)
{
    int most_across = 1, most_down = 1, num_blocks = 0;
    if (length < 6 || body[0] != 8)
        return 0;
    shape[0] = body[3] << 8 | body[4];
    shape[1] = body[1] << 8 | body[2];
    shape[2] = body[5];
    if (!shape[0] || !shape[1] || shape[0] > MAX_SIDE || shape[1] > MAX_SIDE ||
        (shape[2] != 1 && shape[2] != 3) || length != 6 + 3 * (size_t)shape[2])
        return 0;
    for (const uint8_t *of = body + 6; of < body + length; of += 3) {
        int across = of[1] >> 4, down = of[1] & 15;
        if (across < 1 || across > 4 || down < 1 || down > 4 || of[2] > 3)
            return 0;
        most_across = across > most_across ? across : most_across;
        most_down = down > most_down ? down : most_down;
        num_blocks += across * down;
        *quantizers |= 1u << of[2];
    }
    for (const uint8_t *of = body + 6; of < body + length; of += 3)
        if (most_across % (of[1] >> 4) || most_down % (of[1] & 15))
            return 0;
    shape[4] = body[7];
    return shape[2] == 1 || num_blocks <= MAX_BLOCKS;
}

/* Whether the Huffman tables of a segment can be built. Those that it has are added. */
static int are_sound_tables(const uint8_t *body, size_t length, unsigned *tables)
{
    while (length) {
        unsigned num = 0, code = 0;
        if (length < 17 || (body[0] & 0xef) > 3)
            return 0;
        for (int bits = 1; bits <= 16; bits++) {
            num += body[bits];
            code += body[bits];
            /* All codes of a length are taken, or more: the last would be all ones, which none may be. */
            if (body[bits] && code >= 1u << bits)
                return 0;
            code <<= 1;
        }
        if (num > 256 || 17 + num > length)
            return 0;
        if (!(body[0] & 0x10))
            for (unsigned k = 0; k < num; k++)
                if (body[17 + k] > MAX_SYMBOL)
                    return 0;
        *tables |= 1u << (body[0] & 3) << (body[0] & 0x10 ? 4 : 0);
        body += 17 + num, length -= 17 + num;
    }
    return 1;
}

/* Whether a scan has all components of the frame, in their order. The tables that it needs are returned. */
static int is_sound_scan(
    const uint8_t *body, size_t length, const uint8_t *frame, const int *shape, unsigned *tables
)
{
    if (!frame || length != 4 + 2 * (size_t)shape[2] || body[0] != shape[2])
        return 0;
    for (int c = 0; c < shape[2]; c++) {
        const uint8_t *of = body + 1 + 2 * c;
        if (of[0] != frame[6 + 3 * c] || of[1] & 0xcc)
            return 0;
        *tables |= 1u << (of[1] >> 4) | 16u << (of[1] & 3);
    }
    return 1;
}

/* Whether a file's decoding cannot end in an error, wherever in its compressed data a bit may be wrong: a
 * baseline image, all in one scan, with the tables it needs before it, in which nothing but restart
 * markers comes before the end. `shape` becomes width, height, the number of components, the number of
 * bytes up to the end, and the sampling of the first component. */
int stoker_jpeg_is_sound(const uint8_t *file, size_t nbytes, int *shape)
{
    unsigned tables = 0, needed_tables = 0, quantizers = 0, needed_quantizers = 0;
    const uint8_t *frame = NULL;
    size_t at = 2;
    int marker = 0;
    if (nbytes < 4 || file[0] != 0xff || file[1] != SOI)
        return 0;
    while (marker != SOS) {
        if (at + 4 > nbytes || file[at] != 0xff)
            return 0;
        marker = file[at + 1];
        size_t length = (size_t)file[at + 2] << 8 | file[at + 3];
        const uint8_t *body = file + at + 4;
        if (length < 2 || length > nbytes - at - 2)
            return 0;
        at += 2 + length;
        length -= 2;
        if (marker == SOF0) {
            if (frame || !is_sound_frame(body, length, shape, &needed_quantizers))
                return 0;
            frame = body;
        } else if (marker == DHT) {
            if (!are_sound_tables(body, length, &tables))
                return 0;
        } else if (marker == DQT) {
            for (size_t k = 0; k < length; k += 65) {
                if (k + 65 > length || body[k] > 3) /* of 8 bits, as a baseline image's are */
                    return 0;
                quantizers |= 1u << body[k];
            }
        } else if (marker == DRI) {
            if (length != 2)
                return 0;
        } else if (marker == SOS) {
            if (!is_sound_scan(body, length, frame, shape, &needed_tables))
                return 0;
        } else if (marker != COM && (marker < APP0 || marker > APP15)) {
            return 0;
        }
    }
    if (needed_tables & ~tables || needed_quantizers & ~quantizers)
        return 0;
    while (at < nbytes) {
        const uint8_t *found = memchr(file + at, 0xff, nbytes - at);
        if (!found || found + 1 == file + nbytes)
            return 0;
        marker = found[1];
        at = (size_t)(found - file) + 2;
        if (marker == EOI) {
            shape[3] = at > INT_MAX ? INT_MAX : (int)at;
            return 1;
        }
        if (marker && (marker < RST0 || marker > RST7))
            return 0;
    }
    return 0;
}

/* ---- decoding */

struct attempt {
    struct error_manager error;
    struct source_manager source;
    jmp_buf way_out;
};

/* libjpeg's first field is the error manager, and ours begins an attempt. */
static struct attempt *attempt_of(struct decompress *of)
{
    return (struct attempt *)of->error;
}

static void leave(struct decompress *of)
{
    longjmp(attempt_of(of)->way_out, 1);
}

static void on_message(struct decompress *of, int level)
{
    if (level < 0) /* a warning */
        leave(of);
}

static int on_end_of_file(struct decompress *of)
{
    leave(of);
    return 0;
}

static void on_skip(struct decompress *of, long num)
{
    if (num <= 0)
        return;
    if ((size_t)num > of->source->num_left)
        leave(of);
    of->source->next += num;
    of->source->num_left -= (size_t)num;
}

static void nothing(struct decompress *of)
{
    (void)of;
}

/* libjpeg begins and ends a row at whole blocks; they are chosen so that the margins are among them. */
static void begin_part(struct decompress *of, const int *shape, struct jpeg_part *part)
{
    const struct libjpeg *lib = part->lib;
    lib->read_header(of, 1);
    if ((int)of->width != shape[0] || (int)of->height != shape[1] || of->color != COLOR_YCC ||
        of->num_components != 3)
        leave(of);
    of->to_color = COLOR_RGBX;
    lib->start(of);
    if (of->components != PIXEL_NBYTES)
        leave(of);
    int right = part->left + part->width;
    int from = part->left > MARGIN ? part->left - MARGIN : 0;
    int end = right < shape[0] - MARGIN ? right + MARGIN : shape[0];
    part->begin = part->left;
    if (from > 0 || end < shape[0]) {
        unsigned first = (unsigned)from, num = (unsigned)(end - from);
        lib->crop(of, &first, &num);
        part->begin -= (int)first;
    }
    part->num = (int)of->to_width;
    if (part->begin < 0 || part->num > part->room || part->begin + part->width > part->num)
        leave(of);
    if (part->top && lib->skip_rows(of, (unsigned)part->top) != (unsigned)part->top)
        leave(of);
}

void jpeg_pull(void *from, int num)
{
    struct jpeg_part *part = from;
    while (part->num_pulled < num) {
        unsigned got = part->lib->read_rows(
            part->of, part->rows + part->num_pulled, (unsigned)(num - part->num_pulled)
        );
        if (!got)
            leave(part->of);
        part->num_pulled += (int)got;
    }
}

int jpeg_decode(
    const struct libjpeg *lib, const uint8_t *file, size_t nbytes, const int *shape,
    struct jpeg_part *part, part_user use, void *context
)
{
    union decompress_room decompress;
    struct attempt attempt;
    struct decompress *of = &decompress.public;
    if (part->left < 0 || part->top < 0 || part->width < 1 || part->height < 1 ||
        part->left > shape[0] - part->width || part->top > shape[1] - part->height)
        return -1;
    memset(&decompress, 0, sizeof decompress);
    of->error = lib->std_error(&attempt.error);
    attempt.error.error_exit = leave;
    attempt.error.emit_message = on_message;
    attempt.error.output_message = nothing;
    attempt.source = (struct source_manager){
        file, nbytes, nothing, on_end_of_file, on_skip, lib->resync, nothing
    };
    part->lib = lib, part->of = of, part->num_pulled = 0;
    if (setjmp(attempt.way_out)) { /* what is changed behind it lies in memory: libjpeg has its address */
        lib->destroy(of);
        return -1;
    }
    lib->create(of, ABI_VERSION, sizeof decompress);
    of->source = &attempt.source;
    begin_part(of, shape, part);
    int failed = use(context, part);
    /* Not all are pulled where `use` has refused. */
    if (part->num_pulled == part->height && part->top + part->height == shape[1])
        lib->finish(of); /* what comes behind the pixels may be worth a warning */
    lib->destroy(of);
    return failed;
}

static int pull_all(void *context, struct jpeg_part *part)
{
    (void)context;
    jpeg_pull(part, part->height);
    return 0;
}

/* Decode all of a file, to rows of as many pixels. Returns 0, or -1: see `jpeg_decode`. */
int stoker_jpeg_decode(
    const struct libjpeg *lib, const uint8_t *file, size_t nbytes, const int *shape, uint8_t **rows
)
{
    struct jpeg_part part = {.width = shape[0], .height = shape[1], .rows = rows, .room = shape[0]};
    return jpeg_decode(lib, file, nbytes, shape, &part, pull_all, NULL);
}
