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
    object *(*item)(object *list, ptrdiff_t at);   /* borrowed, as are the next two */
    object *(*field)(object *tuple, ptrdiff_t at);
    object *(*code)(object *function);
    object *(*kind)(object *any);
    void (*give_back)(object *any);
};

enum { HELD, NAMES, VALUES, FUNCTIONS, CODES, OBJECTS, KINDS }; /* of trusted.py's _Space */

static int is_same(const struct python *python, object *space)
{
    object *names = python->field(space, NAMES), *values = python->field(space, VALUES);
    object *functions = python->field(space, FUNCTIONS), *codes = python->field(space, CODES);
    object *objects = python->field(space, OBJECTS), *kinds = python->field(space, KINDS);
    object *name, *value;
    ptrdiff_t num = python->num_in(names), each = 0;
    for (ptrdiff_t place = 0; python->next(python->field(space, HELD), &place, &name, &value); each++)
        if (each == num || python->item(names, each) != name || python->item(values, each) != value)
            return 0;
    if (each != num)
        return 0;
    for (each = python->num_in(functions); each--;)
        if (python->code(python->item(functions, each)) != python->item(codes, each))
            return 0;
    for (each = python->num_in(objects); each--;) {
        object *kind = python->kind(python->item(objects, each));
        python->give_back(kind);
        if (kind != python->item(kinds, each))
            return 0;
    }
    return 1;
}

int stoker_are_unchanged(const struct python *python, object *spaces)
{
    for (ptrdiff_t each = python->num_in(spaces); each--;)
        if (!is_same(python, python->item(spaces, each)))
            return 0;
    return 1;
}
