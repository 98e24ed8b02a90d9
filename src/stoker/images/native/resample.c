/* Resample 8-bit pixels as Pillow does, with the same bits.
 *
 * Pillow computes the weights of each output pixel in doubles, rounds them to 22 binary places, adds
 * products of integers, and rounds to 8 bits after each of the two passes. The weights are computed
 * here by the same operations in the same order; the sums are of integers, so that their order does
 * not matter (kernels.c).
 *
 * Promise: what comes out is what Pillow's resample gives for the same part, with zero as the fourth
 *   byte. Nothing is read or written beyond what the job says.
 * Ban: no allocation, no thread.
 * Source: Pillow, src/libImaging/Resample.c: precompute_coeffs, normalize_coeffs_8bpc.
 */

#include "resample.h"

#include "kernels.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define ALIGNMENT 64
#define MAX_TAPS 4096
#define MAX_SIDE 65535

#define ROUND_UP(n, to) (((n) + (to) - 1) / (to) * (to))

/* ---- weights */

static double box_filter(double x)
{
    return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static double bilinear_filter(double x)
{
    x = x < 0.0 ? -x : x;
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* a * b + c as Pillow's wheels compute it: rounded once where the processor can and the compiler was not told
 * otherwise, so on ARM. Seen in Pillow 13.0's wheel: bicubic_filter. */
static inline double product_and_sum(double a, double b, double c)
{
#if defined(__aarch64__)
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

static double bicubic_filter(double x)
{
    const double a = -0.5;
    x = x < 0.0 ? -x : x;
    if (x < 1.0)
        return product_and_sum(product_and_sum(a + 2.0, x, -(a + 3.0)) * x, x, 1);
    if (x < 2.0)
        return product_and_sum(product_and_sum(x - 5, x, 8), x, -4) * a;
    return 0.0;
}

double (*the_sine)(double);

static double sinc(double x)
{
    if (x == 0.0)
        return 1.0;
    x = x * M_PI;
    return the_sine(x) / x;
}

static double lanczos_filter(double x)
{
    return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

static const struct {
    double (*weight)(double);
    double support;
} FILTERS[NUM_FILTERS] = {
    [BOX] = {box_filter, 0.5},
    [BILINEAR] = {bilinear_filter, 1.0},
    [BICUBIC] = {bicubic_filter, 2.0},
    [LANCZOS] = {lanczos_filter, 3.0},
};

static int taps_of(int from, int to, int filter)
{
    double scale = (double)from / to;
    double support = FILTERS[filter].support * (scale < 1.0 ? 1.0 : scale);
    return support > MAX_TAPS / 2 ? MAX_TAPS + 1 : (int)ceil(support) * 2 + 1;
}

static size_t axis_nbytes(int num, int num_taps)
{
    size_t num_weights = (size_t)num * ROUND_UP(num_taps, GROUP);
    return ROUND_UP(num * sizeof(int32_t), ALIGNMENT) +
           2 * ROUND_UP(num_weights * sizeof(int16_t), ALIGNMENT);
}

/* Fill an axis: of `to` pixels that `from` become, `num` from `want` on. at: of the first of `from`
 * in its row or column, of which `available` may be read. */
static char *fill_axis(
    struct axis *axis, char *memory, int from, int to, int filter, int want, int num, int at,
    int available
)
{
    int num_taps = taps_of(from, to, filter);
    axis->num = num;
    axis->num_taps = ROUND_UP(num_taps, GROUP);
    size_t weights_nbytes = ROUND_UP((size_t)num * axis->num_taps * sizeof(int16_t), ALIGNMENT);
    axis->first = (int32_t *)memory;
    memory += ROUND_UP(num * sizeof(int32_t), ALIGNMENT);
    axis->high = (int16_t *)memory;
    axis->low = (int16_t *)(memory + weights_nbytes);
    memset(memory, 0, 2 * weights_nbytes);
    double scale = (double)from / to;
    double filter_scale = scale < 1.0 ? 1.0 : scale;
    double support = FILTERS[filter].support * filter_scale;
    double inverse = 1.0 / filter_scale;
    double weights[MAX_TAPS + 1];
    for (int k = 0; k < num; k++) {
        double center = (want + k + 0.5) * scale;
        int begin = (int)(center - support + 0.5);
        begin = begin < 0 ? 0 : begin;
        int end = (int)(center + support + 0.5);
        end = end > from ? from : end;
        double sum = 0.0;
        for (int x = 0; x < end - begin; x++) {
            weights[x] = FILTERS[filter].weight((x + begin - center + 0.5) * inverse);
            sum += weights[x];
        }
        /* A whole group is read: near the end of a row begin earlier, with weights of zero. */
        int first = at + begin;
        int too_far = first + axis->num_taps - available;
        int shift = too_far <= 0 ? 0 : too_far < first ? too_far : first;
        axis->first[k] = first - shift;
        for (int x = 0; x < end - begin; x++) {
            double w = sum != 0.0 ? weights[x] / sum : weights[x];
            int32_t weight = w < 0 ? (int)(-0.5 + w * (1 << PRECISION_BITS))
                                   : (int)(0.5 + w * (1 << PRECISION_BITS));
            size_t place = (size_t)k * axis->num_taps + shift + x;
            axis->high[place] = (int16_t)(weight >> SPLIT_BITS);
            axis->low[place] = (int16_t)(weight & ((1 << SPLIT_BITS) - 1));
        }
    }
    return memory + 2 * weights_nbytes;
}

/* ---- both passes */

struct plan {
    int is_across, is_down; /* which passes are needed */
    int is_down_first;
    int first_row, num_rows; /* of the image: those that the wanted ones are made of */
    int first_column, num_columns;
    int num_at_once; /* rows that are read together */
    size_t middle_nbytes; /* of a row between the passes, at most */
    size_t nbytes;
};

/* Which of `from` pixels the wanted ones are made of. Not less than those: the rest weighs nothing. */
static void range_of(int from, int to, int filter, int want, int num, int *first, int *count)
{
    double scale = (double)from / to;
    double support = FILTERS[filter].support * (scale < 1.0 ? 1.0 : scale);
    int begin = (int)((want + 0.5) * scale - support + 0.5);
    int end = (int)((want + num - 0.5) * scale + support + 0.5);
    *first = begin < 0 ? 0 : begin;
    *count = (end > from ? from : end) - *first;
}

static int make_plan(const struct resample *job, struct plan *plan)
{
    const int sides[] = {job->width, job->height, job->to_width, job->to_height};
    for (int k = 0; k < 4; k++)
        if (sides[k] < 1 || sides[k] > MAX_SIDE)
            return -1;
    if (job->filter < 0 || job->filter >= NUM_FILTERS ||
        (job->filter == LANCZOS && !the_sine) || job->want_x < 0 || job->want_y < 0 ||
        job->want_width < 1 || job->want_height < 1 ||
        job->want_x > job->to_width - job->want_width ||
        job->want_y > job->to_height - job->want_height)
        return -1;
    plan->is_across = job->width != job->to_width;
    plan->is_down = job->height != job->to_height;
    plan->is_down_first = plan->is_down && (job->is_vertical_first || !plan->is_across);
    int taps_across = plan->is_across ? taps_of(job->width, job->to_width, job->filter) : 0;
    int taps_down = plan->is_down ? taps_of(job->height, job->to_height, job->filter) : 0;
    if (taps_across > MAX_TAPS - GROUP || taps_down > MAX_TAPS - GROUP)
        return -1;
    plan->first_row = job->want_y, plan->num_rows = job->want_height;
    if (plan->is_down)
        range_of(
            job->height, job->to_height, job->filter, job->want_y, job->want_height,
            &plan->first_row, &plan->num_rows
        );
    plan->first_column = job->want_x, plan->num_columns = job->want_width;
    if (plan->is_across)
        range_of(
            job->width, job->to_width, job->filter, job->want_x, job->want_width,
            &plan->first_column, &plan->num_columns
        );
    /* The part may begin before what may be read, and end behind it: not what is read of it. */
    int left = job->left + plan->first_column, top = job->top + plan->first_row;
    if (left < 0 || left > job->rows_width - plan->num_columns || top < 0 ||
        top > job->rows_height - plan->num_rows)
        return -1;
    plan->num_at_once = plan->is_down_first && taps_down > ROWS ? ROUND_UP(taps_down, GROUP) : ROWS;
    plan->nbytes = axis_nbytes(job->want_width, taps_across) +
                   axis_nbytes(job->want_height, taps_down);
    int columns = plan->is_down_first ? plan->num_columns : job->want_width;
    plan->middle_nbytes = ROUND_UP((size_t)columns * PIXEL_NBYTES, ALIGNMENT);
    size_t num_middle = plan->is_down_first ? ROWS : plan->num_rows + ROWS;
    plan->nbytes += num_middle * plan->middle_nbytes;
    plan->nbytes += ROUND_UP((size_t)job->want_width * PIXEL_NBYTES, ALIGNMENT) * ROWS;
    return 0;
}

size_t resample_scratch_nbytes(const struct resample *job)
{
    struct plan plan;
    return make_plan(job, &plan) ? 0 : plan.nbytes + ALIGNMENT;
}

int resample_reach(const struct resample *job, struct reach *reach)
{
    struct plan plan;
    if (make_plan(job, &plan))
        return -1;
    *reach = (struct reach){
        plan.first_column, plan.num_columns, plan.first_row, plan.num_rows, plan.num_at_once
    };
    return 0;
}

static void pull(const struct resample *job, int num)
{
    if (job->pull)
        job->pull(job->from, num);
}

/* Horizontally, then vertically: what has been resampled across lies one row behind the other. */
static void across_first(
    const struct resample *job, const struct plan *plan, const struct axis *wide,
    const struct axis *high, char *memory, row_sink sink, void *context
)
{
    size_t stride = plan->middle_nbytes;
    int nbytes = job->want_width * PIXEL_NBYTES;
    uint8_t *middle = (uint8_t *)memory;
    uint8_t *row = middle + (plan->num_rows + ROWS) * stride;
    int top = job->top + plan->first_row;
    const uint8_t *const *rows = job->rows + top;
    for (int y = 0; y < plan->num_rows; y += ROWS) {
        int num = plan->num_rows - y < ROWS ? plan->num_rows - y : ROWS;
        pull(job, top + y + num);
        rows_across(
            job->simd, wide, rows + y, num, job->rows_width, middle + y * stride, stride
        );
    }
    for (int k = 0; k < job->want_height; k++) {
        if (!plan->is_down) {
            sink(context, k, middle + k * stride);
            continue;
        }
        const uint8_t *taps[MAX_TAPS];
        int first = high->first[k] - job->top - plan->first_row;
        int num = plan->num_rows - first < high->num_taps ? plan->num_rows - first : high->num_taps;
        for (int tap = 0; tap < num; tap++)
            taps[tap] = middle + (first + tap) * stride;
        row_down(job->simd, high, k, taps, num, nbytes, row);
        sink(context, k, row);
    }
}

/* Vertically, then horizontally: ROWS rows at a time. */
static void down_first(
    const struct resample *job, const struct plan *plan, const struct axis *wide,
    const struct axis *high, char *memory, row_sink sink, void *context
)
{
    size_t stride = plan->middle_nbytes;
    size_t row_nbytes = ROUND_UP((size_t)job->want_width * PIXEL_NBYTES, ALIGNMENT);
    int begin = (job->left + plan->first_column) * PIXEL_NBYTES;
    uint8_t *middle = (uint8_t *)memory, *done = middle + ROWS * stride;
    for (int k = 0; k < job->want_height; k += ROWS) {
        int num = job->want_height - k < ROWS ? job->want_height - k : ROWS;
        const uint8_t *rows[ROWS];
        for (int r = 0; r < num; r++) {
            const uint8_t *taps[MAX_TAPS];
            int first = high->first[k + r], last = job->top + plan->first_row + plan->num_rows;
            int num_taps = last - first < high->num_taps ? last - first : high->num_taps;
            pull(job, first + num_taps);
            for (int tap = 0; tap < num_taps; tap++)
                taps[tap] = job->rows[first + tap] + begin;
            rows[r] = middle + r * stride;
            row_down(
                job->simd, high, k + r, taps, num_taps, plan->num_columns * PIXEL_NBYTES,
                middle + r * stride
            );
        }
        if (plan->is_across)
            rows_across(job->simd, wide, rows, num, plan->num_columns, done, row_nbytes);
        for (int r = 0; r < num; r++)
            sink(context, k + r, plan->is_across ? done + r * row_nbytes : rows[r]);
    }
}

int resample(const struct resample *job, void *scratch, row_sink sink, void *context)
{
    struct plan plan;
    if (make_plan(job, &plan))
        return -1;
    char *memory = (char *)ROUND_UP((uintptr_t)scratch, ALIGNMENT);
    struct axis wide = {0}, high = {0};
    /* Where columns come first they are cut out before, and begin at zero. */
    if (plan.is_across)
        memory = fill_axis(
            &wide, memory, job->width, job->to_width, job->filter, job->want_x, job->want_width,
            plan.is_down_first ? -plan.first_column : job->left,
            plan.is_down_first ? plan.num_columns : job->rows_width
        );
    if (plan.is_down)
        memory = fill_axis(
            &high, memory, job->height, job->to_height, job->filter, job->want_y, job->want_height,
            job->top, INT_MAX
        );
    if (plan.is_down_first)
        down_first(job, &plan, &wide, &high, memory, sink, context);
    else if (plan.is_across)
        across_first(job, &plan, &wide, &high, memory, sink, context);
    else
        for (int y = 0; y < job->want_height; y++) {
            int row = job->top + job->want_y + y;
            pull(job, row + 1);
            sink(context, y, job->rows[row] + (size_t)PIXEL_NBYTES * (job->left + job->want_x));
        }
    return 0;
}
