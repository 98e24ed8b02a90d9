/* Copy samples into a batch with streaming (non-temporal) stores.
 *
 * An ordinary store first reads the line it is going to overwrite; a streaming one does not. A
 * batch that is larger than the caches thus moves through memory twice instead of three times.
 *
 * Promise: `dst` holds what memcpy would have put there, and nothing around it is touched; when
 *   the function returns, any other process that is told so sees it.
 * Ban: no Python. One build serves all Python versions (stream_copy.py loads it with ctypes).
 */

#include <emmintrin.h> /* SSE2: every x86-64 has it, so no flag and no look at the CPU */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LINE 64 /* bytes that a processor moves at once; a part of one would be read after all */

static void copy_one(char *dst, const char *src, size_t nbytes)
{
    size_t head = -(uintptr_t)dst % LINE;
    if (head > nbytes)
        head = nbytes;
    memcpy(dst, src, head);
    dst += head, src += head, nbytes -= head;
    for (; nbytes >= LINE; dst += LINE, src += LINE, nbytes -= LINE) {
        const __m128i *from = (const __m128i *)src;
        __m128i *to = (__m128i *)dst;
        __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
        __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    memcpy(dst, src, nbytes);
}

/* `num` pieces of `nbytes` each, one after the other into `dst`, which none of them overlaps. */
void stoker_stream_copy(void *dst, const void *const *srcs, size_t num, size_t nbytes)
{
    for (size_t i = 0; i < num; i++)
        copy_one((char *)dst + i * nbytes, srcs[i], nbytes);
    _mm_sfence(); /* streaming stores may overtake others: not what comes after this */
}
