/* The sums of a resampling, in forms that give the same bits: plain C, AVX2, AVX-512 with VNNI, and NEON (neon.c).
 *
 * Sums are of integers, so their order does not matter. A weight is split in two 16-bit halves, for
 * products of such are added in pairs by one instruction:
 *
 *   weight = high * 2^15 + low    sum(p * weight) = (sum(p * high) << 15) + sum(p * low)  (mod 2^32)
 *
 * Promise: nothing is read beyond the rows' `available` pixels or `nbytes` bytes.
 * Source: Pillow, src/libImaging/Resample.c: ImagingResampleHorizontal_8bpc, ImagingResampleVertical_8bpc.
 */

#include "kernels.h"

#include "neon.h"
#include "resample.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define FOR_AVX2 __attribute__((target("avx2")))
#define FOR_AVX512 __attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512vnni")))
#endif

/* ---- plain */

static inline uint8_t clip8(int32_t sum)
{
    int32_t value = sum >> PRECISION_BITS;
    return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

static void across(const struct axis *axis, const uint8_t *row, int available, uint8_t *to)
{
    for (int k = 0; k < axis->num; k++, to += PIXEL_NBYTES) {
        int32_t sums[3] = {HALF, HALF, HALF};
        for (int tap = 0; tap < axis->num_taps && axis->first[k] + tap < available; tap++) {
            const uint8_t *pixel = row + (size_t)PIXEL_NBYTES * (axis->first[k] + tap);
            int32_t weight = weight_at(axis, k, tap);
            for (int c = 0; c < 3; c++)
                sums[c] += pixel[c] * weight;
        }
        for (int c = 0; c < 3; c++)
            to[c] = clip8(sums[c]);
        to[3] = 0;
    }
}

/* Bytes from `begin` on. */
static void down(
    const struct axis *axis, int k, const uint8_t *const *rows, int num_rows, int begin, int nbytes,
    uint8_t *to
)
{
    for (int at = begin; at < nbytes; at++) {
        int32_t sum = HALF;
        for (int tap = 0; tap < axis->num_taps && tap < num_rows; tap++)
            sum += rows[tap][at] * weight_at(axis, k, tap);
        to[at] = at % PIXEL_NBYTES == 3 ? 0 : clip8(sum);
    }
}

#if defined(__x86_64__)

/* Two weights, as they lie. */
static inline int two_at(const int16_t *weights)
{
    int two;
    memcpy(&two, weights, sizeof two);
    return two;
}

/* One pixel of each of four rows. */
static inline void store_four(uint8_t *to, size_t stride, __m128i four)
{
    uint8_t pixels[4 * PIXEL_NBYTES];
    _mm_storeu_si128((__m128i *)pixels, four);
    for (int r = 0; r < 4; r++)
        memcpy(to + r * stride, pixels + r * PIXEL_NBYTES, PIXEL_NBYTES);
}

/* ---- AVX2 */

FOR_AVX2 static void across_avx2(
    const struct axis *axis, const uint8_t *const *rows, uint8_t *to, size_t stride
)
{
    /* Of four pixels: the reds of two as 16 bits, and so on; the other two in the upper half. */
    const __m256i pairs = _mm256_setr_epi8(
        0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, -1, -1, -1, -1, 8, -1, 12, -1, 9, -1, 13, -1, 10, -1,
        14, -1, -1, -1, -1, -1
    );
    const __m256i spread = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m128i half = _mm_set1_epi32(HALF);
    for (int k = 0; k < axis->num; k++) {
        const int16_t *high = axis->high + (size_t)k * axis->num_taps;
        const int16_t *low = axis->low + (size_t)k * axis->num_taps;
        size_t at = (size_t)PIXEL_NBYTES * axis->first[k];
        __m256i highs[ROWS], lows[ROWS];
        __m128i sums[ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++)
            highs[r] = lows[r] = _mm256_setzero_si256();
        for (int tap = 0; tap < axis->num_taps; tap += GROUP, at += GROUP * PIXEL_NBYTES) {
            __m256i h = _mm256_permutevar8x32_epi32(
                _mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)(high + tap))), spread
            );
            __m256i l = _mm256_permutevar8x32_epi32(
                _mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)(low + tap))), spread
            );
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) {
                __m256i pixels = _mm256_shuffle_epi8(
                    _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(rows[r] + at))), pairs
                );
                highs[r] = _mm256_add_epi32(highs[r], _mm256_madd_epi16(pixels, h));
                lows[r] = _mm256_add_epi32(lows[r], _mm256_madd_epi16(pixels, l));
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(highs[r], SPLIT_BITS), lows[r]);
            __m128i both =
                _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
            sums[r] = _mm_srai_epi32(_mm_add_epi32(both, half), PRECISION_BITS);
        }
        __m128i four =
            _mm_packus_epi16(_mm_packs_epi32(sums[0], sums[1]), _mm_packs_epi32(sums[2], sums[3]));
        uint8_t *pixel = to + (size_t)PIXEL_NBYTES * k;
        store_four(pixel, stride, four);
    }
}

/* Returns how many bytes of the row are done: the rest is less than a vector. */
FOR_AVX2 static int down_avx2(
    const struct axis *axis, int k, const uint8_t *const *rows, int num_rows, int nbytes, uint8_t *to
)
{
    const int16_t *high = axis->high + (size_t)k * axis->num_taps;
    const int16_t *low = axis->low + (size_t)k * axis->num_taps;
    int num_taps = axis->num_taps < num_rows ? axis->num_taps : num_rows;
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(HALF);
    const __m256i visible = _mm256_set1_epi32(0x00ffffff);
    int at = 0;
    for (; at + 32 <= nbytes; at += 32) {
        __m256i highs[4], lows[4];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            highs[q] = lows[q] = zero;
        for (int tap = 0; tap < num_taps; tap += 2) {
            int has_two = tap + 1 < num_taps; /* a row that is not there weighs nothing */
            __m256i h = _mm256_set1_epi32(two_at(high + tap)), l = _mm256_set1_epi32(two_at(low + tap));
            __m256i a = _mm256_loadu_si256((const __m256i *)(rows[tap] + at));
            __m256i b = has_two ? _mm256_loadu_si256((const __m256i *)(rows[tap + 1] + at)) : zero;
            __m256i first = _mm256_unpacklo_epi8(a, b), second = _mm256_unpackhi_epi8(a, b);
            __m256i quarters[4] = {
                _mm256_unpacklo_epi8(first, zero), _mm256_unpackhi_epi8(first, zero),
                _mm256_unpacklo_epi8(second, zero), _mm256_unpackhi_epi8(second, zero)
            };
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++) {
                highs[q] = _mm256_add_epi32(highs[q], _mm256_madd_epi16(quarters[q], h));
                lows[q] = _mm256_add_epi32(lows[q], _mm256_madd_epi16(quarters[q], l));
            }
        }
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(highs[q], SPLIT_BITS), lows[q]);
            highs[q] = _mm256_srai_epi32(_mm256_add_epi32(sum, half), PRECISION_BITS);
        }
        __m256i packed = _mm256_packus_epi16(
            _mm256_packs_epi32(highs[0], highs[1]), _mm256_packs_epi32(highs[2], highs[3])
        );
        _mm256_storeu_si256((__m256i *)(to + at), _mm256_and_si256(packed, visible));
    }
    return at;
}

/* ---- AVX-512 */

/* The values of sums, before they are packed to bytes. */
FOR_AVX512 static inline __m512i values_of(__m512i highs, __m512i lows)
{
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(highs, SPLIT_BITS), lows);
    return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(HALF)), PRECISION_BITS);
}

/* One pixel of each of four rows, made of their pixels from `at` on: 4 x 4 bytes. */
FOR_AVX512 static inline __m128i four_pixels(
    const struct axis *axis, int k, const uint8_t *const *rows
)
{
    const int16_t *high = axis->high + (size_t)k * axis->num_taps;
    const int16_t *low = axis->low + (size_t)k * axis->num_taps;
    size_t at = (size_t)PIXEL_NBYTES * axis->first[k];
    /* Of four pixels: the reds of two as 16 bits, and so on. */
    const __m512i begin = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, -1, -1, -1, -1)
    );
    const __m512i end = _mm512_broadcast_i32x4(
        _mm_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, -1, -1, -1, -1)
    );
    __m512i highs = _mm512_setzero_si512(), lows = highs, more_highs = highs, more_lows = highs;
    for (int tap = 0; tap < axis->num_taps; tap += GROUP, at += GROUP * PIXEL_NBYTES) {
        __m512i pixels = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(rows[0] + at)));
        pixels = _mm512_inserti32x4(pixels, _mm_loadu_si128((const __m128i *)(rows[1] + at)), 1);
        pixels = _mm512_inserti32x4(pixels, _mm_loadu_si128((const __m128i *)(rows[2] + at)), 2);
        pixels = _mm512_inserti32x4(pixels, _mm_loadu_si128((const __m128i *)(rows[3] + at)), 3);
        __m512i two = _mm512_shuffle_epi8(pixels, begin), more = _mm512_shuffle_epi8(pixels, end);
        highs = _mm512_dpwssd_epi32(highs, two, _mm512_set1_epi32(two_at(high + tap)));
        lows = _mm512_dpwssd_epi32(lows, two, _mm512_set1_epi32(two_at(low + tap)));
        more_highs = _mm512_dpwssd_epi32(more_highs, more, _mm512_set1_epi32(two_at(high + tap + 2)));
        more_lows = _mm512_dpwssd_epi32(more_lows, more, _mm512_set1_epi32(two_at(low + tap + 2)));
    }
    __m512i values = values_of(_mm512_add_epi32(highs, more_highs), _mm512_add_epi32(lows, more_lows));
    return _mm512_cvtusepi32_epi8(_mm512_max_epi32(values, _mm512_setzero_si512()));
}

FOR_AVX512 static void across_avx512(
    const struct axis *axis, const uint8_t *const *rows, uint8_t *to, size_t stride
)
{
    int k = 0;
    for (; k + 4 <= axis->num; k += 4) {
        __m128i a = four_pixels(axis, k, rows), b = four_pixels(axis, k + 1, rows);
        __m128i c = four_pixels(axis, k + 2, rows), d = four_pixels(axis, k + 3, rows);
        __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
        __m128i ab2 = _mm_unpackhi_epi32(a, b), cd2 = _mm_unpackhi_epi32(c, d);
        uint8_t *pixel = to + (size_t)PIXEL_NBYTES * k;
        _mm_storeu_si128((__m128i *)pixel, _mm_unpacklo_epi64(ab, cd));
        _mm_storeu_si128((__m128i *)(pixel + stride), _mm_unpackhi_epi64(ab, cd));
        _mm_storeu_si128((__m128i *)(pixel + 2 * stride), _mm_unpacklo_epi64(ab2, cd2));
        _mm_storeu_si128((__m128i *)(pixel + 3 * stride), _mm_unpackhi_epi64(ab2, cd2));
    }
    for (; k < axis->num; k++) {
        __m128i four = four_pixels(axis, k, rows);
        uint8_t *pixel = to + (size_t)PIXEL_NBYTES * k;
        store_four(pixel, stride, four);
    }
}

FOR_AVX512 static void down_avx512(
    const struct axis *axis, int k, const uint8_t *const *rows, int num_rows, int nbytes, uint8_t *to
)
{
    const int16_t *high = axis->high + (size_t)k * axis->num_taps;
    const int16_t *low = axis->low + (size_t)k * axis->num_taps;
    int num_taps = axis->num_taps < num_rows ? axis->num_taps : num_rows;
    const __m512i zero = _mm512_setzero_si512(), visible = _mm512_set1_epi32(0x00ffffff);
    for (int at = 0; at < nbytes; at += 64) {
        int left = nbytes - at;
        __mmask64 there = left < 64 ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0;
        __m512i highs[4], lows[4];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            highs[q] = lows[q] = zero;
        for (int tap = 0; tap < num_taps; tap += 2) {
            int has_two = tap + 1 < num_taps; /* a row that is not there weighs nothing */
            __m512i h = _mm512_set1_epi32(two_at(high + tap)), l = _mm512_set1_epi32(two_at(low + tap));
            __m512i a = _mm512_maskz_loadu_epi8(there, rows[tap] + at);
            __m512i b = has_two ? _mm512_maskz_loadu_epi8(there, rows[tap + 1] + at) : zero;
            __m512i first = _mm512_unpacklo_epi8(a, b), second = _mm512_unpackhi_epi8(a, b);
            __m512i quarters[4] = {
                _mm512_unpacklo_epi8(first, zero), _mm512_unpackhi_epi8(first, zero),
                _mm512_unpacklo_epi8(second, zero), _mm512_unpackhi_epi8(second, zero)
            };
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++) {
                highs[q] = _mm512_dpwssd_epi32(highs[q], quarters[q], h);
                lows[q] = _mm512_dpwssd_epi32(lows[q], quarters[q], l);
            }
        }
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            highs[q] = values_of(highs[q], lows[q]);
        __m512i packed = _mm512_packus_epi16(
            _mm512_packs_epi32(highs[0], highs[1]), _mm512_packs_epi32(highs[2], highs[3])
        );
        _mm512_mask_storeu_epi8(to + at, there, _mm512_and_si512(packed, visible));
    }
}

/* A cpuid leaves a virtual machine, which takes long: it is asked once (native.py). */
enum simd simd_here(void)
{
    const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL;
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA) ||
        !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return PLAIN;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6) /* the system keeps the registers */
        return PLAIN;
    return (b & avx512) == avx512 && c & bit_AVX512VNNI && (low & 0xe6) == 0xe6 ? AVX512 : AVX2;
}
#elif defined(__aarch64__)
enum simd simd_here(void)
{
    return NEON;
}
#else
enum simd simd_here(void)
{
    return PLAIN;
}
#endif

/* ROWS rows at once; not by a PLAIN one. */
static void four_across(
    enum simd simd, const struct axis *axis, const uint8_t *const *rows, uint8_t *to, size_t stride
)
{
#if defined(__x86_64__)
    (simd == AVX512 ? across_avx512 : across_avx2)(axis, rows, to, stride);
#elif defined(__aarch64__)
    (void)simd;
    across_neon(axis, rows, to, stride);
#else
    (void)simd, (void)axis, (void)rows, (void)to, (void)stride;
#endif
}

void rows_across(
    enum simd simd, const struct axis *axis, const uint8_t *const *rows, int num_rows, int available,
    uint8_t *to, size_t stride
)
{
    if (simd != PLAIN && available >= axis->num_taps) {
        const uint8_t *four[ROWS]; /* too few rows: the last one again, which is overwritten */
        for (int r = 0; r < ROWS; r++)
            four[r] = rows[r < num_rows ? r : num_rows - 1];
        four_across(simd, axis, four, to, stride);
        return;
    }
    for (int r = 0; r < num_rows; r++)
        across(axis, rows[r], available, to + r * stride);
}

void row_down(
    enum simd simd, const struct axis *axis, int k, const uint8_t *const *rows, int num_rows, int nbytes,
    uint8_t *to
)
{
    int done = 0;
#if defined(__x86_64__)
    if (simd == AVX512) {
        down_avx512(axis, k, rows, num_rows, nbytes, to);
        return;
    }
    if (simd == AVX2)
        done = down_avx2(axis, k, rows, num_rows, nbytes, to);
#elif defined(__aarch64__)
    if (simd == NEON)
        done = down_neon(axis, k, rows, num_rows, nbytes, to);
#else
    (void)simd;
#endif
    down(axis, k, rows, num_rows, done, nbytes, to);
}
