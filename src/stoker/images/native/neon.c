/* The sums of a resampling and the tensors of a row, for 64-bit ARM.
 *
 * Promise: the bits are those of the plain forms (kernels.c, image.c): sums of integers modulo 2^32, and quotients
 *   that the processor rounds as IEEE 754 says.
 */

#include "neon.h"

#if defined(__aarch64__)

#include "resample.h"

#include <arm_neon.h>
#include <string.h>

#define VECTOR 16 /* bytes, and pixels of which the bytes of one colour fill a vector */

static inline int32x4x4_t widened(uint8x16_t bytes)
{
    uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return (int32x4x4_t){{
        vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_high_u16(low)),
        vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_high_u16(high)),
    }};
}

/* The pixels of sums: shifted, clipped, and without the bytes that nobody reads. */
static inline uint8x16_t pixels_of(const int32x4_t *sums)
{
    const uint8x16_t visible = vreinterpretq_u8_u32(vdupq_n_u32(0x00ffffff));
    int16x8_t low = vcombine_s16(
        vqmovn_s32(vshrq_n_s32(sums[0], PRECISION_BITS)), vqmovn_s32(vshrq_n_s32(sums[1], PRECISION_BITS))
    );
    int16x8_t high = vcombine_s16(
        vqmovn_s32(vshrq_n_s32(sums[2], PRECISION_BITS)), vqmovn_s32(vshrq_n_s32(sums[3], PRECISION_BITS))
    );
    return vandq_u8(vcombine_u8(vqmovun_s16(low), vqmovun_s16(high)), visible);
}

void across_neon(const struct axis *axis, const uint8_t *const *rows, uint8_t *to, size_t stride)
{
    for (int k = 0; k < axis->num; k++, to += PIXEL_NBYTES) {
        const int16_t *high = axis->high + (size_t)k * axis->num_taps;
        const int16_t *low = axis->low + (size_t)k * axis->num_taps;
        size_t at = (size_t)PIXEL_NBYTES * axis->first[k];
        int32x4_t sums[ROWS];
        for (int r = 0; r < ROWS; r++)
            sums[r] = vdupq_n_s32(HALF);
        for (int tap = 0; tap < axis->num_taps; tap += GROUP, at += GROUP * PIXEL_NBYTES) {
            int32x4_t weights = vaddw_s16(vshll_n_s16(vld1_s16(high + tap), SPLIT_BITS), vld1_s16(low + tap));
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) {
                int32x4x4_t pixels = widened(vld1q_u8(rows[r] + at));
                sums[r] = vmlaq_laneq_s32(sums[r], pixels.val[0], weights, 0);
                sums[r] = vmlaq_laneq_s32(sums[r], pixels.val[1], weights, 1);
                sums[r] = vmlaq_laneq_s32(sums[r], pixels.val[2], weights, 2);
                sums[r] = vmlaq_laneq_s32(sums[r], pixels.val[3], weights, 3);
            }
        }
        uint8_t pixels[ROWS * PIXEL_NBYTES];
        vst1q_u8(pixels, pixels_of(sums));
        for (int r = 0; r < ROWS; r++)
            memcpy(to + r * stride, pixels + r * PIXEL_NBYTES, PIXEL_NBYTES);
    }
}

int down_neon(
    const struct axis *axis, int k, const uint8_t *const *rows, int num_rows, int nbytes, uint8_t *to
)
{
    int num_taps = axis->num_taps < num_rows ? axis->num_taps : num_rows;
    int at = 0;
    for (; at + VECTOR <= nbytes; at += VECTOR) {
        int32x4_t sums[4];
        for (int q = 0; q < 4; q++)
            sums[q] = vdupq_n_s32(HALF);
        for (int tap = 0; tap < num_taps; tap++) {
            int32x4x4_t bytes = widened(vld1q_u8(rows[tap] + at));
            int32_t weight = weight_at(axis, k, tap);
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++)
                sums[q] = vmlaq_n_s32(sums[q], bytes.val[q], weight);
        }
        vst1q_u8(to + at, pixels_of(sums));
    }
    return at;
}

/* ---- a row as a tensor */

/* Sixteen pixels from the x-th on, in the order in which they are wanted: the reds, and so on. */
static inline uint8x16x4_t colours_at(const uint8_t *row, int x, int width, int is_mirrored)
{
    if (!is_mirrored)
        return vld4q_u8(row + (size_t)PIXEL_NBYTES * x);
    uint8x16x4_t colours = vld4q_u8(row + (size_t)PIXEL_NBYTES * (width - VECTOR - x));
    for (int c = 0; c < 3; c++) {
        uint8x16_t turned = vrev64q_u8(colours.val[c]);
        colours.val[c] = vextq_u8(turned, turned, 8);
    }
    return colours;
}

int as_bytes_neon(uint8_t *to, const uint8_t *row, int width, int is_mirrored)
{
    int x = 0;
    for (; x + VECTOR <= width; x += VECTOR) {
        uint8x16x4_t colours = colours_at(row, x, width, is_mirrored);
        vst3q_u8(to + (size_t)3 * x, (uint8x16x3_t){{colours.val[0], colours.val[1], colours.val[2]}});
    }
    return x;
}

int as_floats_neon(
    float *to, size_t plane, const uint8_t *row, int width, int is_mirrored, int by_division,
    const float *mean, const float *std
)
{
    const float32x4_t whole = vdupq_n_f32(255.0f), part = vdupq_n_f32((float)(1.0 / 255));
    int x = 0;
    for (; x + VECTOR <= width; x += VECTOR) {
        uint8x16x4_t colours = colours_at(row, x, width, is_mirrored);
        float32x4_t made[3][4];
        for (int c = 0; c < 3; c++) {
            int32x4x4_t values = widened(colours.val[c]);
            for (int q = 0; q < 4; q++) {
                float32x4_t value = vcvtq_f32_s32(values.val[q]);
                value = by_division ? vdivq_f32(value, whole) : vmulq_f32(value, part);
                made[c][q] = vdivq_f32(vsubq_f32(value, vdupq_n_f32(mean[c])), vdupq_n_f32(std[c]));
            }
        }
        for (int q = 0; q < 4; q++) {
            int at = x + 4 * q;
            if (!plane)
                vst3q_f32(to + (size_t)3 * at, (float32x4x3_t){{made[0][q], made[1][q], made[2][q]}});
            else
                for (int c = 0; c < 3; c++)
                    vst1q_f32(to + c * plane + at, made[c][q]);
        }
    }
    return x;
}

#endif
