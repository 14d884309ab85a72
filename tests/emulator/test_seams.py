"""One contract test per symbol of moto that the emulator wraps or calls: an update of moto must fail here and not in a demo."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from moto.core.exceptions import JsonRESTError, ServiceException
from moto.core.responses import ActionResult, BaseResponse
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceBackend, InstancePlacement, InstanceState, StateReason
from moto.ec2.models.tags import TagBackend
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_fleets import SpotFleets
from moto.ec2.responses.spot_instances import SpotInstances
from moto.ec2.utils import filter_dict_attribute_mapping, is_tag_filter
from moto.events.models import Rule
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.servicequotas.responses import ServiceQuotasResponse


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (InstanceResponse, "run_instances"),
        (InstanceResponse, "describe_instances"),
        (InstanceResponse, "start_instances"),
        (InstanceResponse, "stop_instances"),
        (InstanceResponse, "reboot_instances"),
        (Fleets, "create_fleet"),
        (SpotFleets, "request_spot_fleet"),
        (SpotInstances, "request_spot_instances"),
        (SpotInstances, "describe_spot_instance_requests"),
        (SpotInstances, "cancel_spot_instance_requests"),
        (SpotInstances, "describe_spot_price_history"),
        (ServiceQuotasResponse, "get_service_quota"),
        (ServiceQuotasResponse, "list_aws_default_service_quotas"),
    ],
)
def test_a_response_method_is_a_plain_function_of_the_response(owner: type, name: str) -> None:
    # moto finds actions with inspect.isfunction; anything else would not be called.
    assert inspect.isfunction(inspect.getattr_static(owner, name))
    assert parameters(getattr(owner, name)) == ["self"]


@pytest.mark.parametrize("name", ["list_service_quotas", "get_aws_default_service_quota"])
def test_moto_still_lacks_what_we_add_to_service_quotas(name: str) -> None:
    assert not hasattr(ServiceQuotasResponse, name)


def test_the_backend_makes_instances_with_the_arguments_we_pass_on() -> None:
    assert parameters(InstanceBackend.run_instances) == ["self", "image_id", "count", "user_data", "security_group_names", "kwargs"]


def test_an_instance_is_terminated_without_arguments() -> None:
    assert parameters(Instance.terminate) == ["self"]


def test_a_launch_template_is_found_by_the_reference_of_the_call() -> None:
    assert parameters(InstanceBackend._get_template_from_args) == ["self", "launch_template_arg"]


def test_an_instance_keeps_state_reason_and_transition_where_we_write_them() -> None:
    source = inspect.getsource(Instance)
    for attribute in ("self._state = InstanceState", "self._reason = ", "self.state_reason = StateReason()", "self._placement.zone"):
        assert attribute in source
    assert {"name", "code"} == set(vars(InstanceState()))
    assert {"message", "code"} == set(vars(StateReason()))
    assert "zone" in vars(InstancePlacement())


def test_tags_are_kept_by_resource_and_key() -> None:
    backend = TagBackend()
    assert backend.tags == {}
    backend.tags["i-1"]["job"] = "j1"
    assert backend.tags == {"i-1": {"job": "j1"}}


def test_filters_of_describe_instances_come_from_a_mapping_we_can_extend() -> None:
    assert filter_dict_attribute_mapping["instance-state-name"] == "state"
    assert is_tag_filter("tag:job")


def test_parsed_parameters_and_filters_are_where_we_read_them() -> None:
    assert parameters(BaseResponse._get_param) == ["self", "param_name", "if_none"]
    assert parameters(InstanceResponse._filters_from_querystring) == ["self"]
    assert parameters(ActionResult.__init__) == ["self", "result"]


def test_errors_are_made_of_a_code_and_a_message() -> None:
    error = EC2ClientError("Code", "message")
    assert isinstance(error, ServiceException)
    assert (error.code, error.message) == ("Code", "message")
    assert JsonRESTError("Code", "message").error_type == "Code"


def test_the_catalogue_has_the_fields_we_read() -> None:
    assert {"InstanceType", "Location"} <= set(INSTANCE_TYPE_OFFERINGS["availability-zone-id"]["us-east-1"][0])
    assert INSTANCE_TYPES["g5.xlarge"]["VCpuInfo"]["DefaultVCpus"] == 4
    assert INSTANCE_TYPES["g5.xlarge"]["GpuInfo"]["Gpus"][0]["Count"] == 1
    zones = {zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones["us-east-1"]}
    assert len(zones) == 6


def test_a_rule_takes_a_whole_event_without_transforming_it() -> None:
    assert parameters(Rule.send_to_targets) == ["self", "original_event", "transform_input"]


def test_the_wsgi_application_is_made_as_we_make_it() -> None:
    assert parameters(DomainDispatcherApplication.__init__) == ["self", "create_app"]
    assert parameters(create_backend_app) == ["service"]
    assert hasattr(MotoRequestHandler, "log_request")
