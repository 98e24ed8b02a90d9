/* Make of an image's pixels what a script asks for: resampled, cut, mirrored, as a tensor.
 *
 * All is done row by row: a row that was resampled is in the cache when it is mirrored, turned into
 * numbers and spread over the planes of a tensor, which are written past the caches.
 *
 * Promise: the bytes are those that Pillow and torch give step by step (resample.c; a tensor's values
 *   are of a table that torch computed, or come from the same operations).
 * Ban: no allocation, no thread, no Python. One build serves all Python versions (native.py loads it
 *   with ctypes).
 */

#include "jpeg.h"
#include "kernels.h"
#include "neon.h"
#include "resample.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define FOR_AVX2 __attribute__((target("avx2,fma")))
#endif

#define NUM_VALUES 256
#define NUM_PLACES 16 /* for rows of a file, if not fewer or more are needed: they fit a cache */

enum kind {
    AS_PIXELS, /* rows of 4-byte pixels */
    AS_BYTES,  /* height x width x 3 bytes */
    AS_FLOATS, /* 3 x height x width floats */
    AS_FLOATS_LAST, /* height x width x 3 floats */
};

/* (byte / 255 - mean) / std, or (byte * (1 / 255) - mean) / std */
enum { NOT, BY_DIVISION, BY_PRODUCT };

struct output {
    int kind;
    int is_mirrored, is_flipped; /* left to right, top to bottom */
    uint8_t *const *rows; /* AS_PIXELS: where each goes to */
    void *values;         /* others: where they begin */
    const float *table;   /* AS_FLOATS...: of each channel, the value of each byte */
    int computes; /* AS_FLOATS...: how, where that gives the table's values; else 0 */
    float mean[3], std[3];
    int streams; /* whether nobody reads the values soon */
};

struct row_of {
    const struct output *output;
    int width, height;
    enum simd simd;
};

/* ---- a row of pixels as each kind; from: the first pixel; those behind `x` are left to do */

static inline const uint8_t *pixel_at(const struct row_of *of, const uint8_t *row, int x)
{
    return row + (size_t)PIXEL_NBYTES * (of->output->is_mirrored ? of->width - 1 - x : x);
}

static void as_pixels(const struct row_of *of, uint8_t *to, const uint8_t *row)
{
    if (!of->output->is_mirrored)
        memcpy(to, row, (size_t)of->width * PIXEL_NBYTES);
    else
        for (int x = 0; x < of->width; x++, to += PIXEL_NBYTES)
            memcpy(to, pixel_at(of, row, x), PIXEL_NBYTES);
}

static void as_bytes(const struct row_of *of, uint8_t *to, const uint8_t *row, int x)
{
    for (; x < of->width; x++)
        memcpy(to + (size_t)3 * x, pixel_at(of, row, x), 3);
}

static void as_floats(const struct row_of *of, float *to, size_t plane, const uint8_t *row, int x)
{
    for (; x < of->width; x++)
        for (int c = 0; c < 3; c++)
            to[c * plane + x] = of->output->table[c * NUM_VALUES + pixel_at(of, row, x)[c]];
}

static void as_floats_last(const struct row_of *of, float *to, const uint8_t *row, int x)
{
    for (; x < of->width; x++)
        for (int c = 0; c < 3; c++)
            to[(size_t)3 * x + c] = of->output->table[c * NUM_VALUES + pixel_at(of, row, x)[c]];
}

#ifdef FOR_AVX2
/* Eight pixels from the x-th on, in the order in which they are wanted. */
FOR_AVX2 static inline __m256i eight_at(const struct row_of *of, const uint8_t *row, int x)
{
    if (!of->output->is_mirrored)
        return _mm256_loadu_si256((const __m256i *)(row + (size_t)PIXEL_NBYTES * x));
    const uint8_t *from = row + (size_t)PIXEL_NBYTES * (of->width - 8 - x);
    return _mm256_permutevar8x32_epi32(
        _mm256_loadu_si256((const __m256i *)from), _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0)
    );
}

/* Each function returns how many pixels it has done: the rest is less than a vector. */

/* The 24 bytes of eight pixels without those that nobody reads. */
FOR_AVX2 static inline void three_bytes_of_eight(uint8_t *to, __m256i pixels)
{
    const __m256i closer = _mm256_setr_epi8(
        0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14,
        -1, -1, -1, -1
    );
    uint8_t bytes[32];
    _mm256_storeu_si256((__m256i *)bytes, _mm256_shuffle_epi8(pixels, closer));
    memcpy(to, bytes, 12);
    memcpy(to + 12, bytes + 16, 12);
}

FOR_AVX2 static int as_bytes_avx2(const struct row_of *of, uint8_t *to, const uint8_t *row)
{
    int x = 0;
    for (; x + 8 <= of->width; x += 8)
        three_bytes_of_eight(to + (size_t)3 * x, eight_at(of, row, x));
    return x;
}

/* a / b, of which `inverse` is 1 / b: a product, corrected by what it misses. For the values that it is used for
 * that gives a / b to the bit, as tensors.py has found out. Source: Markstein, Computation of elementary functions
 * on the IBM RISC System/6000 processor, 1990. */
FOR_AVX2 static inline __m256 quotient(__m256 a, __m256 b, __m256 inverse)
{
    __m256 product = _mm256_mul_ps(a, inverse);
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(product, b, a), inverse, product);
}

/* Eight bytes as floats. mean, std, inverse: of each of them; table, offsets: where each's values are. */
FOR_AVX2 static inline __m256 floats_of(
    const struct output *output, __m256i values, __m256 mean, __m256 std, __m256 inverse, __m256i offsets
)
{
    if (!output->computes)
        return _mm256_i32gather_ps(output->table, _mm256_add_epi32(values, offsets), sizeof(float));
    const __m256 whole = _mm256_set1_ps(255.0f), part = _mm256_set1_ps((float)(1.0 / 255));
    __m256 made = _mm256_cvtepi32_ps(values);
    made = output->computes == BY_DIVISION ? quotient(made, whole, part) : _mm256_mul_ps(made, part);
    return quotient(_mm256_sub_ps(made, mean), std, inverse);
}

FOR_AVX2 static int as_floats_avx2(const struct row_of *of, float *to, size_t plane, const uint8_t *row)
{
    const struct output *output = of->output;
    const __m256i byte = _mm256_set1_epi32(0xff);
    int streams = output->streams && (uintptr_t)to % 32 == 0 && plane % 8 == 0;
    __m256 means[3], stds[3], inverses[3];
    for (int c = 0; c < 3; c++) {
        means[c] = _mm256_set1_ps(output->mean[c]), stds[c] = _mm256_set1_ps(output->std[c]);
        inverses[c] = _mm256_set1_ps(1 / output->std[c]);
    }
    int x = 0;
    for (; x + 8 <= of->width; x += 8) {
        __m256i pixels = eight_at(of, row, x);
#pragma GCC unroll 3
        for (int c = 0; c < 3; c++, pixels = _mm256_srli_epi32(pixels, 8)) {
            __m256 made = floats_of(
                output, _mm256_and_si256(pixels, byte), means[c], stds[c], inverses[c],
                _mm256_set1_epi32(c * NUM_VALUES)
            );
            if (streams)
                _mm256_stream_ps(to + c * plane + x, made);
            else
                _mm256_storeu_ps(to + c * plane + x, made);
        }
    }
    return x;
}

FOR_AVX2 static int as_floats_last_avx2(const struct row_of *of, float *to, const uint8_t *row)
{
    const struct output *output = of->output;
    float means[24], stds[24], inverses[24];
    int32_t offsets[24];
    for (int k = 0; k < 24; k++) {
        means[k] = output->mean[k % 3], stds[k] = output->std[k % 3], inverses[k] = 1 / stds[k];
        offsets[k] = k % 3 * NUM_VALUES;
    }
    int x = 0;
    for (; x + 8 <= of->width; x += 8) {
        uint8_t bytes[32];
        three_bytes_of_eight(bytes, eight_at(of, row, x));
        for (int k = 0; k < 24; k += 8)
            _mm256_storeu_ps(
                to + (size_t)3 * x + k,
                floats_of(
                    output, _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(bytes + k))),
                    _mm256_loadu_ps(means + k), _mm256_loadu_ps(stds + k), _mm256_loadu_ps(inverses + k),
                    _mm256_loadu_si256((const __m256i *)(offsets + k))
                )
            );
    }
    return x;
}
#endif

/* ---- as much of a row as whole vectors hold */

static int bytes_at_once(const struct row_of *of, uint8_t *to, const uint8_t *row)
{
    if (of->simd == PLAIN)
        return 0;
#if defined(__x86_64__)
    return as_bytes_avx2(of, to, row);
#elif defined(__aarch64__)
    return as_bytes_neon(to, row, of->width, of->output->is_mirrored);
#else
    (void)to, (void)row;
    return 0;
#endif
}

/* plane: floats from one plane to the next; 0: three floats a pixel. */
static int floats_at_once(const struct row_of *of, float *to, size_t plane, const uint8_t *row)
{
    if (of->simd == PLAIN)
        return 0;
#if defined(__x86_64__)
    return plane ? as_floats_avx2(of, to, plane, row) : as_floats_last_avx2(of, to, row);
#elif defined(__aarch64__)
    const struct output *output = of->output;
    if (!output->computes)
        return 0;
    return as_floats_neon(
        to, plane, row, of->width, output->is_mirrored, output->computes == BY_DIVISION, output->mean,
        output->std
    );
#else
    (void)to, (void)plane, (void)row;
    return 0;
#endif
}

static void take_row(void *context, int y, const uint8_t *row)
{
    const struct row_of *of = context;
    const struct output *output = of->output;
    y = output->is_flipped ? of->height - 1 - y : y;
    size_t at = (size_t)y * of->width, plane = (size_t)of->height * of->width;
    if (output->kind == AS_PIXELS) {
        as_pixels(of, output->rows[y], row);
    } else if (output->kind == AS_BYTES) {
        uint8_t *to = (uint8_t *)output->values + 3 * at;
        as_bytes(of, to, row, bytes_at_once(of, to, row));
    } else if (output->kind == AS_FLOATS_LAST) {
        float *to = (float *)output->values + 3 * at;
        as_floats_last(of, to, row, floats_at_once(of, to, 0, row));
    } else {
        float *to = (float *)output->values + at;
        as_floats(of, to, plane, row, floats_at_once(of, to, plane, row));
    }
}

/* ---- from rows, or from a file */

/* Returns 0; -1 if the job is none of ours, and nothing was written. */
static int make(const struct resample *job, const struct output *output, void *scratch)
{
    struct row_of of = {output, job->want_width, job->want_height, job->simd};
    return resample(job, scratch, take_row, &of);
}

/* Streaming stores may overtake others: not what comes after this. */
static int all_stored(int failed)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
    return failed;
}

/* A part of a file is resampled while it is decoded: a row is used before it leaves the caches, and then its
 * place is another row's. Rows are decoded in their order, and used in it: no row is read again once one that
 * lies `num_at_once` behind it was pulled. */
struct rows_of_file {
    struct reach reach;
    int num_places; /* for rows */
    int room;       /* pixels of each */
    size_t nbytes;
};

static int lay_out(const struct resample *job, struct rows_of_file *rows)
{
    if (resample_reach(job, &rows->reach))
        return -1;
    int num = rows->reach.num_at_once > NUM_PLACES ? rows->reach.num_at_once : NUM_PLACES;
    rows->num_places = num < rows->reach.num_rows ? num : rows->reach.num_rows;
    rows->room = rows->reach.num_columns + ROOM_PIXELS;
    rows->nbytes = (size_t)rows->num_places * rows->room * PIXEL_NBYTES +
                   (size_t)rows->reach.num_rows * sizeof(uint8_t *);
    return 0;
}

struct making {
    const struct resample *job;
    const struct output *output;
    const struct reach *reach;
    void *scratch;
};

/* The job, told of rows that hold no more than what it reads. */
static int make_of_part(void *context, struct jpeg_part *part)
{
    const struct making *making = context;
    struct resample job = *making->job;
    job.rows = (const uint8_t *const *)part->rows;
    job.rows_width = part->num, job.rows_height = part->height;
    job.left = part->begin - making->reach->column;
    job.top = -making->reach->row;
    job.pull = jpeg_pull, job.from = part;
    return make(&job, making->output, making->scratch);
}

/* The bytes of scratch memory for a job; of_file: for `stoker_image_make_of_jpeg`. 0 if it is none of ours. */
size_t stoker_image_scratch_nbytes(const struct resample *job, int of_file)
{
    struct rows_of_file rows = {0};
    size_t nbytes = resample_scratch_nbytes(job);
    if (!nbytes || (of_file && lay_out(job, &rows)))
        return 0;
    return nbytes + rows.nbytes;
}

int stoker_image_make(const struct resample *job, const struct output *output, void *scratch)
{
    return all_stored(make(job, output, scratch));
}

/* job: of a file of this shape; its rows are not looked at. Returns 0; -1 if it is another's to make: then what
 * was to be made holds anything. */
int stoker_image_make_of_jpeg(
    const struct libjpeg *lib, const uint8_t *file, size_t nbytes, const int *shape,
    const struct resample *job, const struct output *output, void *scratch
)
{
    struct rows_of_file places;
    if (job->rows_width != shape[0] || job->rows_height != shape[1] || lay_out(job, &places))
        return -1;
    const struct reach *reach = &places.reach;
    uint8_t **rows = scratch;
    uint8_t *first = (uint8_t *)(rows + reach->num_rows);
    size_t stride = (size_t)places.room * PIXEL_NBYTES;
    for (int y = 0; y < reach->num_rows; y++)
        rows[y] = first + y % places.num_places * stride;
    struct making making = {job, output, reach, first + places.num_places * stride};
    struct jpeg_part part = {
        .left = job->left + reach->column, .top = job->top + reach->row, .width = reach->num_columns,
        .height = reach->num_rows, .rows = rows, .room = places.room
    };
    return all_stored(jpeg_decode(lib, file, nbytes, shape, &part, make_of_part, &making));
}

void stoker_image_use_sine(double (*sine)(double))
{
    the_sine = sine;
}

int stoker_image_simd_here(void)
{
    return simd_here();
}
