"""What was found survives its way from the script's process to the command."""

import json
from dataclasses import replace

import pytest

from stoker.doctor.facts import Facts
from stoker.doctor.plan import Plan, plan_of
from tests.unit.doctor.examined import FACTS

CASES = {
    "all": FACTS,
    "ended before": replace(FACTS, free=None, costs=None, trials=[], kept=None, why="it ended"),
}


@pytest.mark.parametrize("facts", CASES.values(), ids=CASES)
def test_facts_are_json(facts):
    assert Facts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_a_plan_survives_the_environment():
    plan = Plan("/tmp/a b", 20, 60.0)
    assert plan_of({"OTHER": "1"} | plan.to_env()) == plan
    assert plan_of({}) is None
