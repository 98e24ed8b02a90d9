/* Makes plain objects immortal: what counts references to them writes nothing then, and no page of theirs is
 * copied behind a fork.
 *
 * Source: CPython 3.12 to 3.14, Include/refcount.h and object.h, with the interpreter lock: the lower 32 bits of
 *   the count come first, then, from 3.14 on, flags, of which one says that references are not counted on the
 *   stack either; at eight bytes comes its type. immortal.py says what to write, and tries it on one object first.
 * Promise: nothing is touched but exact str, bytes, int, float, complex, and tuples of nothing else.
 *   The caller holds the interpreter lock.
 */

#include <stddef.h>
#include <stdint.h>

typedef struct object {
    uint32_t count, more;
    struct object *kind;
} object;

struct python {
    ptrdiff_t (*num_in)(object *list);
    object *(*item)(object *list, ptrdiff_t at); /* borrowed, as is the next one */
    object *(*field)(object *tuple, ptrdiff_t at);
    ptrdiff_t (*num_of)(object *tuple);
    int (*next)(object *dict, ptrdiff_t *at, object **key, object **value);
};

enum { LIST, TUPLE, DICT, NUM_CONTAINERS, NUM_PLAIN = 7 };

struct kinds {
    object *containers[NUM_CONTAINERS];
    object *plain[NUM_PLAIN];
    uint64_t immortal; /* the count, and the flags above it */
};

static const int MAX_DEPTH = 4;

static int is_plain(const struct python *python, const struct kinds *kinds, object *any, int depth)
{
    for (int each = 0; each < NUM_PLAIN; each++)
        if (any->kind == kinds->plain[each])
            return 1;
    if (any->kind != kinds->containers[TUPLE] || depth == MAX_DEPTH)
        return 0;
    for (ptrdiff_t each = python->num_of(any); each--;)
        if (!is_plain(python, kinds, python->field(any, each), depth + 1))
            return 0;
    return 1;
}

static ptrdiff_t mark(const struct python *python, const struct kinds *kinds, object *any)
{
    ptrdiff_t num = 1;
    if (any->kind == kinds->containers[TUPLE])
        for (ptrdiff_t each = python->num_of(any); each--;)
            num += mark(python, kinds, python->field(any, each));
    if ((int32_t)any->count >= 0) {
        any->count = (uint32_t)kinds->immortal;
        any->more |= kinds->immortal >> 32;
    }
    return num;
}

static ptrdiff_t mark_plain(const struct python *python, const struct kinds *kinds, object *any)
{
    return is_plain(python, kinds, any, 0) ? mark(python, kinds, any) : 0;
}

/* Return how many objects of a container are immortal now. */
ptrdiff_t stoker_make_immortal(
    const struct python *python, const struct kinds *kinds, object *container)
{
    ptrdiff_t num = 0, at = 0;
    object *key, *value;
    if (container->kind == kinds->containers[LIST])
        for (ptrdiff_t each = python->num_in(container); each--;)
            num += mark_plain(python, kinds, python->item(container, each));
    else if (container->kind == kinds->containers[TUPLE])
        for (ptrdiff_t each = python->num_of(container); each--;)
            num += mark_plain(python, kinds, python->field(container, each));
    else if (container->kind == kinds->containers[DICT])
        while (python->next(container, &at, &key, &value))
            num += mark_plain(python, kinds, key) + mark_plain(python, kinds, value);
    return num;
}
