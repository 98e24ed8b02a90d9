/* Keep elements of few different values as a byte each, and a table of the values.
 *
 *   coded: for each plane  table: 256 values, those that it has first, as they come; zeros behind
 *                          indices: a byte an element, zeros up to a multiple of LINE bytes
 *
 * A normalised photograph has 256 values a channel at most. Elements are compared as integers of
 * their size, so NaNs, -0.0 and denormals come back as they were.
 *
 * Promise: decoded is what was encoded, bit by bit; equal elements give equal bytes. Whatever is
 *   given to be decoded, nothing is read or written beyond what the lengths say.
 * Ban: no Python. One build serves all Python versions (palette.py loads it with ctypes).
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 8)
#define HAS_VBMI /* if the processor does, see may_use_vbmi */
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define LINE 64
#define NUM_VALUES 256
#define NUM_SLOTS 4096 /* of a hash table: sparse, so that a number is found at the first look */
#define NUM_LOOKS 1024 /* elements that are looked at before a plane is encoded */

/* ---- checks */

#define MIX(hash, word) (hash = (hash ^ (word)) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32)

/* A number that tells bytes from others, but for one pair in 2^64, unless somebody seeks one. Eight
 * words in turn, for each takes as long as a product; what comes is asked for early, for a value
 * that is checked was seldom read before: 18 us for 150 KB, else 26. */
uint64_t stoker_check(const void *memory, size_t nbytes)
{
    const unsigned char *at = memory;
    uint64_t a = nbytes, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7;
    uint64_t words[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (; nbytes >= sizeof words; at += sizeof words, nbytes -= sizeof words) {
        memcpy(words, at, sizeof words);
        __builtin_prefetch(at + 1024);
        MIX(a, words[0]);
        MIX(b, words[1]);
        MIX(c, words[2]);
        MIX(d, words[3]);
        MIX(e, words[4]);
        MIX(f, words[5]);
        MIX(g, words[6]);
        MIX(h, words[7]);
    }
    memset(words, 0, sizeof words);
    memcpy(words, at, nbytes);
    for (int k = 0; k < 8; k++)
        MIX(a, words[k]);
    const uint64_t others[7] = {b, c, d, e, f, g, h};
    for (int k = 0; k < 7; k++)
        MIX(a, others[k]);
    return a;
}

/* ---- there
 *
 * A free slot holds the first value of all, whose number is 0: so no slot need tell whether it is.
 * `number` returns NUM_VALUES for a value that would be one too many. */

#define DEFINE_ENCODE(TYPE, NAME)                                                                  \
    typedef struct {                                                                               \
        TYPE keys[NUM_SLOTS], values[NUM_VALUES], first;                                           \
        unsigned char numbers[NUM_SLOTS];                                                          \
        unsigned num;                                                                              \
    } NAME##_found;                                                                                \
                                                                                                   \
    static void NAME##_begin(NAME##_found *found, TYPE first)                                      \
    {                                                                                              \
        memset(found, 0, sizeof *found);                                                           \
        for (int slot = 0; slot < NUM_SLOTS; slot++)                                               \
            found->keys[slot] = first;                                                             \
        found->first = found->values[0] = first;                                                   \
        found->num = 1;                                                                            \
    }                                                                                              \
                                                                                                   \
    static inline unsigned NAME##_number(NAME##_found *found, TYPE value)                          \
    {                                                                                              \
        unsigned slot = (unsigned)((value * 0x9e3779b97f4a7c15u) >> 52);                           \
        while (found->keys[slot] != value) {                                                       \
            if (found->keys[slot] == found->first) {                                               \
                if (found->num == NUM_VALUES)                                                      \
                    return NUM_VALUES;                                                             \
                found->keys[slot] = found->values[found->num] = value;                             \
                found->numbers[slot] = (unsigned char)found->num++;                                \
                break;                                                                             \
            }                                                                                      \
            slot = (slot + 1) % NUM_SLOTS;                                                         \
        }                                                                                          \
        return found->numbers[slot];                                                               \
    }                                                                                              \
                                                                                                   \
    static int NAME##_may_fit(const TYPE *plane, size_t num)                                       \
    {                                                                                              \
        NAME##_found found;                                                                        \
        NAME##_begin(&found, plane[0]);                                                            \
        for (size_t i = 0; i < num; i += num / NUM_LOOKS + 1)                                      \
            if (NAME##_number(&found, plane[i]) == NUM_VALUES)                                     \
                return 0;                                                                          \
        return 1;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static int NAME##_encode(unsigned char *coded, const TYPE *plane, size_t num)                  \
    {                                                                                              \
        NAME##_found found;                                                                        \
        unsigned char *indices = coded + sizeof found.values;                                      \
        NAME##_begin(&found, plane[0]);                                                            \
        for (size_t i = 0; i < num; i++) {                                                         \
            unsigned number = NAME##_number(&found, plane[i]);                                     \
            if (number == NUM_VALUES)                                                              \
                return 0;                                                                          \
            indices[i] = (unsigned char)number;                                                    \
        }                                                                                          \
        memset(indices + num, 0, -num % LINE);                                                     \
        memcpy(coded, found.values, sizeof found.values);                                          \
        return 1;                                                                                  \
    }

DEFINE_ENCODE(uint16_t, two)
DEFINE_ENCODE(uint32_t, four)
DEFINE_ENCODE(uint64_t, eight)

/* Whether planes may have few values: some elements of the first and the last one are looked at. */
int stoker_palette_may_fit(const void *memory, size_t num_planes, size_t num, size_t item_nbytes)
{
    const char *last = (const char *)memory + (num_planes - 1) * num * item_nbytes;
    switch (item_nbytes) {
    case 2:
        return two_may_fit(memory, num) && two_may_fit((const void *)last, num);
    case 4:
        return four_may_fit(memory, num) && four_may_fit((const void *)last, num);
    case 8:
        return eight_may_fit(memory, num) && eight_may_fit((const void *)last, num);
    }
    return 0;
}

/* Encode planes of `num` elements each, one at least. Returns 0 if one of them has too many values. */
int stoker_palette_encode(void *coded, const void *memory, size_t num_planes, size_t num,
                          size_t item_nbytes)
{
    size_t coded_nbytes = NUM_VALUES * item_nbytes + num + -num % LINE;
    for (size_t p = 0; p < num_planes; p++) {
        void *to = (char *)coded + p * coded_nbytes;
        const void *plane = (const char *)memory + p * num * item_nbytes;
        int fits = item_nbytes == 2   ? two_encode(to, plane, num)
                   : item_nbytes == 4 ? four_encode(to, plane, num)
                                      : eight_encode(to, plane, num);
        if (!fits)
            return 0;
    }
    return 1;
}

/* ---- and back */

#define DEFINE_DECODE(TYPE, NAME)                                                                  \
    static void NAME##_decode(TYPE *plane, const unsigned char *indices, size_t num,               \
                              const TYPE *table)                                                   \
    {                                                                                              \
        for (size_t i = 0; i < num; i++)                                                           \
            plane[i] = table[indices[i]];                                                          \
    }

DEFINE_DECODE(uint16_t, two)
DEFINE_DECODE(uint32_t, four)
DEFINE_DECODE(uint64_t, eight)

#ifdef __SSE2__

/* The same with streaming stores of 16 bytes, which do not read what they overwrite: see
 * stream_copy.c. Of the elements before the first and behind the last such store the above. */

static inline __m128i two_group(const unsigned char *i, const uint16_t *t)
{
    return _mm_setr_epi16((short)t[i[0]], (short)t[i[1]], (short)t[i[2]], (short)t[i[3]],
                          (short)t[i[4]], (short)t[i[5]], (short)t[i[6]], (short)t[i[7]]);
}

static inline __m128i four_group(const unsigned char *i, const uint32_t *t)
{
    __m128i a = _mm_cvtsi32_si128((int)t[i[0]]), b = _mm_cvtsi32_si128((int)t[i[1]]);
    __m128i c = _mm_cvtsi32_si128((int)t[i[2]]), d = _mm_cvtsi32_si128((int)t[i[3]]);
    return _mm_unpacklo_epi64(_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
}

static inline __m128i eight_group(const unsigned char *i, const uint64_t *t)
{
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)&t[i[0]]),
                              _mm_loadl_epi64((const __m128i *)&t[i[1]]));
}

#define DEFINE_STREAM(TYPE, NAME)                                                                  \
    static void NAME##_stream(TYPE *plane, const unsigned char *indices, size_t num,               \
                              const TYPE *table)                                                   \
    {                                                                                              \
        enum { GROUP = 16 / sizeof(TYPE) };                                                        \
        size_t head = (-(uintptr_t)plane % 16) / sizeof(TYPE);                                     \
        if ((uintptr_t)plane % sizeof(TYPE) || head > num)                                         \
            head = num;                                                                            \
        NAME##_decode(plane, indices, head, table);                                                \
        plane += head, indices += head, num -= head;                                               \
        for (; num >= GROUP; plane += GROUP, indices += GROUP, num -= GROUP)                       \
            _mm_stream_si128((__m128i *)plane, NAME##_group(indices, table));                      \
        NAME##_decode(plane, indices, num, table);                                                 \
    }

DEFINE_STREAM(uint16_t, two)
DEFINE_STREAM(uint32_t, four)
DEFINE_STREAM(uint64_t, eight)
#define FENCE() _mm_sfence() /* streaming stores may overtake others: not what comes after this */

#else

#define two_stream two_decode
#define four_stream four_decode
#define eight_stream eight_decode
#define FENCE()

#endif

#ifdef HAS_VBMI

/* Four bytes an element with AVX-512: a table's first bytes lie in four registers of 64, its second
 * ones in four others, and so on; so 64 elements are looked up in 8 instructions. With two busy
 * threads on a core it takes half as long as the loop above, whose limit is instructions, not memory. */

static int may_use_vbmi(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* registers that the system saves */
    if ((low & 0xe6) != 0xe6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    return (b & bit_AVX512F) && (b & bit_AVX512BW) && (c & bit_AVX512VBMI);
}

#define VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))

VBMI static inline __m512i looked_up(const __m512i table[4], __m512i indices, __mmask64 upper)
{
    return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(table[0], indices, table[1]),
                                  _mm512_permutex2var_epi8(table[2], indices, table[3]));
}

VBMI static inline void put(__m512i *to, __m512i elements, int streams)
{
    if (streams)
        _mm512_stream_si512(to, elements);
    else
        _mm512_store_si512(to, elements);
}

/* Of `num` elements as many as whole groups have; `plane` at a multiple of 64. Returns how many. */
VBMI static size_t four_vbmi(uint32_t *plane, const unsigned char *indices, size_t num,
                             const uint32_t *table, int streams)
{
    unsigned char bytes[4][NUM_VALUES], order[64];
    __m512i tables[4][4], found[4];
    for (int v = 0; v < NUM_VALUES; v++)
        for (int b = 0; b < 4; b++)
            bytes[b][v] = (unsigned char)(table[v] >> 8 * b);
    for (int b = 0; b < 4; b++)
        for (int k = 0; k < 4; k++)
            tables[b][k] = _mm512_loadu_si512(&bytes[b][64 * k]);
    /* Bytes are put together within lanes of 16: so element 16 k + 4 lane + j goes to byte 4 k + j
     * of its lane beforehand. */
    for (int i = 0; i < 64; i++)
        order[i] = (unsigned char)(16 * (i % 16 / 4) + 4 * (i / 16) + i % 4);
    __m512i in_lanes = _mm512_loadu_si512(order);
    size_t done = 0;
    for (; done + 64 <= num; done += 64) {
        __m512i at = _mm512_permutexvar_epi8(in_lanes, _mm512_loadu_si512(indices + done));
        __mmask64 upper = _mm512_movepi8_mask(at);
        for (int b = 0; b < 4; b++)
            found[b] = looked_up(tables[b], at, upper);
        __m512i a = _mm512_unpacklo_epi8(found[0], found[1]);
        __m512i b = _mm512_unpackhi_epi8(found[0], found[1]);
        __m512i c = _mm512_unpacklo_epi8(found[2], found[3]);
        __m512i d = _mm512_unpackhi_epi8(found[2], found[3]);
        __m512i *to = (__m512i *)(plane + done);
        put(to, _mm512_unpacklo_epi16(a, c), streams);
        put(to + 1, _mm512_unpackhi_epi16(a, c), streams);
        put(to + 2, _mm512_unpacklo_epi16(b, d), streams);
        put(to + 3, _mm512_unpackhi_epi16(b, d), streams);
    }
    return done;
}

static void four_fast(uint32_t *plane, const unsigned char *indices, size_t num,
                      const uint32_t *table, int streams)
{
    static int has_vbmi = -1; /* whoever is first finds the same */
    size_t head = (-(uintptr_t)plane % 64) / 4, done = 0;
    if (has_vbmi < 0)
        has_vbmi = may_use_vbmi();
    if (has_vbmi && (uintptr_t)plane % 4 == 0 && num >= head + 1024) {
        four_decode(plane, indices, head, table);
        done = head + four_vbmi(plane + head, indices + head, num - head, table, streams);
    }
    (streams ? four_stream : four_decode)(plane + done, indices + done, num - done, table);
}

#else

#define four_fast(plane, indices, num, table, streams)                                             \
    (streams ? four_stream : four_decode)(plane, indices, num, table)

#endif

/* Decode planes of `num` elements each. */
void stoker_palette_decode(void *memory, const void *coded, size_t num_planes, size_t num,
                           size_t item_nbytes, int streams)
{
    size_t table_nbytes = NUM_VALUES * item_nbytes, line_nbytes = num + -num % LINE;
    for (size_t p = 0; p < num_planes; p++) {
        const unsigned char *table = (const unsigned char *)coded + p * (table_nbytes + line_nbytes);
        const unsigned char *indices = table + table_nbytes;
        void *plane = (char *)memory + p * num * item_nbytes;
        switch (item_nbytes) {
        case 2:
            (streams ? two_stream : two_decode)(plane, indices, num, (const void *)table);
            break;
        case 4:
            four_fast(plane, indices, num, (const void *)table, streams);
            break;
        case 8:
            (streams ? eight_stream : eight_decode)(plane, indices, num, (const void *)table);
            break;
        }
    }
    if (streams)
        FENCE();
}
