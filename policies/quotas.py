"""What the vCPU quotas allow."""

from __future__ import annotations

from enum import StrEnum

from policies.model import Offer


class Room(StrEnum):
    """Whether a quota has room for one more instance."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def room(offer: Offer) -> Room:
    """Say whether the quota of the offer's family and market still allows this type.

    The dying source counts against the quota until EC2 closes its Spot request, and so it does here: the headroom is what EC2 would
    count now. An unread quota is unknown, which is neither room nor the lack of it.
    """
    if offer.headroom_vcpus is None:
        return Room.UNKNOWN
    return Room.YES if offer.headroom_vcpus >= offer.vcpus else Room.NO
