"""The cluster files of AWS, Google Cloud and Azure, as Ray's launcher and each cloud read them.

Promise: a field that they do not know fails here, and so does what could cost money or open a port
by mistake. Ban: no cloud, no network.
"""

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.deploy.files import CLOUDS, cloud, optional


@pytest.mark.parametrize("name", CLOUDS)
def test_ray_accepts_the_cluster(name):
    optional("ray.autoscaler")
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(copy.deepcopy(cloud(name)))
    validate_config(prepared)
    for node_type in prepared["available_node_types"].values():
        assert "docker" not in node_type


@pytest.mark.parametrize("name", CLOUDS)
def test_the_trainer_is_the_head_and_on_demand_and_workers_come_and_go_on_spot(name):
    types = cloud(name)["available_node_types"]
    head = types.pop(cloud(name)["head_node_type"])
    assert head["resources"] == {"CPU": 0} and head["max_workers"] == 0
    assert not re.search("spot|preempt", json.dumps(head), re.IGNORECASE)
    assert sum(worker["max_workers"] for worker in types.values()) == cloud(name)["max_workers"]
    for worker in types.values():
        assert worker["min_workers"] == 0 < worker["max_workers"]
        assert re.search('"spot"', json.dumps(worker), re.IGNORECASE)
    assert cloud(name)["provider"]["cache_stopped_nodes"] is False


@pytest.mark.parametrize("name", CLOUDS)
def test_every_node_of_a_cloud_asks_for_the_token(name):
    config = cloud(name)
    assert config["file_mounts"]["/home/ubuntu/.ray/auth_token"] == "~/.ray/auth_token"
    for where in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = [line for line in config[where] if "ray start" in line]
        assert starts and all("RAY_AUTH_MODE=token" in line for line in starts)


def test_the_security_group_of_aws_is_the_users_own():
    for node_type in cloud("aws")["available_node_types"].values():
        assert node_type["node_config"]["SecurityGroupIds"]  # else Ray makes one, SSH open to all


def test_no_machine_of_azure_has_a_public_address():
    provider = cloud("azure")["provider"]
    assert provider["use_internal_ips"] is True and provider["use_external_head_ip"] is False


@pytest.mark.parametrize("name", CLOUDS)
def test_the_commands_of_a_cloud_are_shell(name):
    for key, commands in cloud(name).items():
        if key.endswith("_commands"):
            for command in commands:
                subprocess.run(["bash", "-n", "-c", command], check=True)


def test_aws_knows_every_field():
    optional("botocore")
    from botocore.loaders import Loader
    from botocore.model import ServiceModel
    from botocore.validate import ParamValidator

    service = ServiceModel(Loader().load_service_model("ec2", "service-2"))
    shape = service.operation_model("RunInstances").input_shape
    for node_type in cloud("aws")["available_node_types"].values():
        node = copy.deepcopy(node_type["node_config"])
        node["SubnetId"] = node.pop("SubnetIds")[0]  # as Ray's node provider does
        report = ParamValidator().validate(node | {"MinCount": 1, "MaxCount": 1}, shape)
        assert not report.has_errors(), report.generate_report()
        assert set(node) <= set(shape.members)
        market = shape.members["InstanceMarketOptions"].members["MarketType"].enum
        assert node.get("InstanceMarketOptions", {"MarketType": "spot"})["MarketType"] in market


def test_gcp_knows_every_field():
    package = optional("googleapiclient")
    file = Path(package.__file__).parent / "discovery_cache/documents/compute.v1.json"
    schemas = json.loads(file.read_text())["schemas"]

    def check(value: Any, schema: dict[str, Any], at: str) -> None:
        schema = schemas[schema["$ref"]] if "$ref" in schema else schema
        if isinstance(value, dict):
            for key, below in value.items():
                assert key in schema["properties"], f"{at}.{key}"
                check(below, schema["properties"][key], f"{at}.{key}")
        elif isinstance(value, list):
            for below in value:
                check(below, schema["items"], at)
        elif "enum" in schema:
            assert value in schema["enum"], f"{at}: {value}"

    for name, node_type in cloud("gcp")["available_node_types"].items():
        check(node_type["node_config"], schemas["Instance"], name)


def test_azure_knows_every_field():
    ray = optional("ray")
    file = Path(ray.__file__).parent / "autoscaler/_private/_azure/azure-vm-template.json"
    parameters = json.loads(file.read_text())["parameters"]
    for node_type in cloud("azure")["available_node_types"].values():
        assert set(node_type["node_config"]["azure_arm_parameters"]) <= set(parameters)
