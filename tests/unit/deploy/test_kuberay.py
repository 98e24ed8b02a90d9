"""deploy/kuberay.yaml against KubeRay's fields and Kubernetes' own models.

KubeRay's: ray.io/v1 RayCluster as of 1.5; its schema is in no package, so the names stand here.
"""

import re
from typing import Any

from tests.unit.deploy.files import RAY, kuberay, optional, pods

CLUSTER_FIELDS = {
    "rayVersion",
    "authOptions",
    "enableInTreeAutoscaling",
    "autoscalerOptions",
    "headGroupSpec",
    "workerGroupSpecs",
}
AUTOSCALER_FIELDS = {"version", "idleTimeoutSeconds"}
HEAD_FIELDS = {"serviceType", "rayStartParams", "template"}
WORKER_FIELDS = {
    "groupName",
    "replicas",
    "minReplicas",
    "maxReplicas",
    "rayStartParams",
    "template",
}


def test_the_ray_cluster_has_kuberays_fields_and_no_others():
    cluster, _ = kuberay()
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert set(spec) == CLUSTER_FIELDS
    assert set(spec["headGroupSpec"]) == HEAD_FIELDS
    assert set(spec["autoscalerOptions"]) == AUTOSCALER_FIELDS
    assert spec["authOptions"] == {"mode": "token"}
    for group in spec["workerGroupSpecs"]:
        assert set(group) == WORKER_FIELDS
        assert group["minReplicas"] == group["replicas"] == 0 < group["maxReplicas"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert spec["rayVersion"].startswith(f"{RAY}.")


def test_kubernetes_knows_every_field_of_the_pods_and_the_policy():
    models = optional("kubernetes.client.models")

    def check(value: Any, kind: str, at: str) -> None:
        nested = re.match(r"(?:list\[|dict\(str, )(.*)[\])]$", kind)
        if nested:
            below = value.values() if kind.startswith("dict") else value
            for item in below:
                check(item, nested[1], at)
        elif hasattr(models, kind):
            model = getattr(models, kind)
            fields = {json_name: name for name, json_name in model.attribute_map.items()}
            for key, below in value.items():
                assert key in fields, f"{at}.{key} is no field of {kind}"
                check(below, model.openapi_types[fields[key]], f"{at}.{key}")
        else:
            python = {"str": str, "int": int, "bool": bool}.get(kind, object)
            assert isinstance(value, python), f"{at} is no {kind}: {value!r}"

    for role, template in pods():
        check(template, "V1PodTemplateSpec", role)
    policy = kuberay()[1]
    assert policy["apiVersion"] == "networking.k8s.io/v1"
    check(policy, "V1NetworkPolicy", "policy")


def test_only_workers_go_to_spot_nodes():
    for role, template in pods():
        spec = template["spec"]
        on_spot = "nodeSelector" in spec and "tolerations" in spec
        assert on_spot == (role == "worker")
    terms = dict(pods())["head"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {rule["operator"] for rule in term["matchExpressions"]} == {"NotIn"}


def test_every_container_says_what_it_takes_and_takes_no_rights():
    for role, template in pods():
        for container in template["spec"]["containers"]:
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), role
            assert {"cpu", "memory"} <= set(container["resources"]["limits"]), role
            assert container["securityContext"]["runAsNonRoot"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_only_the_clusters_own_pods_reach_its_pods():
    cluster, policy = kuberay()
    ours = {"podSelector": {"matchLabels": {"ray.io/cluster": cluster["metadata"]["name"]}}}
    assert policy["spec"] == {
        **ours,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [ours]}],
    }
