"""Functions of another module than the datasets of impure.py that call them."""

import inspect
import random


def spent(number):
    total = 0
    for k in range(6000):
        total = (total * 29 + number + k) % 1000003
    return total


def noisy(number):
    value = spent(number)
    return number, value + random.random()


def added(i):
    value = spent(i)
    return value + random.random()


def subtracted(i):
    value = spent(i) + 7
    return value - random.random()


chosen = replaced = added


def swap():
    global chosen
    chosen = subtracted if chosen is added else added


def named(value):
    return value + len(inspect.stack()[1].function)
