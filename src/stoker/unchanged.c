/* Whether dictionaries, functions and objects are what they were, without touching what they lead to.
 *
 * To count a reference to an object is to write to it, and behind a fork each page that is written to
 * is copied, or at least faults: 14,000 of them for the modules of a script with torchvision.
 *
 * Promise: nothing is written, but for the counts of classes. The caller holds the interpreter lock.
 * Ban: nothing of Python is linked: what is called of it comes with each call (unchanged.py), and all
 *   of it has been the same since Python 3.11.
 */

#include <stddef.h>

typedef struct object object;

struct python {
    int (*next)(object *dict, ptrdiff_t *at, object **key, object **value);
    ptrdiff_t (*num_in)(object *list);
    object *(*item)(object *list, ptrdiff_t at); /* borrowed */
    object *(*code)(object *function);           /* borrowed */
    object *(*kind)(object *any);
    void (*give_back)(object *any);
};

/* names, values: of each dictionary its own, in its order, and then the dictionary. */
static int are_dicts_same(const struct python *python, object *dicts, object *names, object *values)
{
    ptrdiff_t num = python->num_in(dicts), end = python->num_in(names), at = 0;
    for (ptrdiff_t each = 0; each < num; each++) {
        object *dict = python->item(dicts, each), *name, *value;
        for (ptrdiff_t place = 0; python->next(dict, &place, &name, &value); at++)
            if (at == end || python->item(names, at) != name || python->item(values, at) != value)
                return 0;
        if (at == end || python->item(names, at++) != dict)
            return 0;
    }
    return at == end;
}

/* Lists of equal length: functions and their codes, objects and their classes. */
int stoker_are_unchanged(const struct python *python, object *dicts, object *names, object *values,
                         object *functions, object *codes, object *objects, object *kinds)
{
    if (!are_dicts_same(python, dicts, names, values))
        return 0;
    for (ptrdiff_t each = python->num_in(functions); each--;)
        if (python->code(python->item(functions, each)) != python->item(codes, each))
            return 0;
    for (ptrdiff_t each = python->num_in(objects); each--;) {
        object *kind = python->kind(python->item(objects, each));
        python->give_back(kind);
        if (kind != python->item(kinds, each))
            return 0;
    }
    return 1;
}
