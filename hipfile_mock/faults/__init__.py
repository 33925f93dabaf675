"""What can go wrong, on demand: rules that match an operation and then do something to it.

>>> import errno
>>> from hipfile_mock import faults
>>> faults.on("pwrite", nth=3, path="*.kv").errno(errno.ENOSPC)
<fault: errno ENOSPC on pwrite, nth=3, path='*.kv'>

Give rules to ``fake(faults=[...])``, or attach them to a machine by hand. A rule that has not fired by the end fails
the test and says what came near. The operations:

========================  =========================================================================================
operation                 actions
========================  =========================================================================================
``pread`` ``pwrite``      ``errno`` ``eintr`` ``partial`` ``short`` ``returns``
``fdatasync`` ``open``    ``errno`` ``eintr``
``reopen`` ``inspect``    ``errno``
``read`` ``write``        ``result`` ``short_by``: the count that an asynchronous operation publishes
``command``               ``delay`` ``stall``: a command that enters a stream
``hip…`` (glob)           ``error``: a HIP call
``hipFile…`` (glob)       ``error`` ``close_driver``: a hipFile call
========================  =========================================================================================
"""

from hipfile_mock.faults.build import On, on
from hipfile_mock.faults.injector import Injector
from hipfile_mock.faults.limits import device_memory, disk, pinned_memory, queue_limit, size_limit
from hipfile_mock.faults.rule import Candidate, FaultNotFired, Rule
from hipfile_mock.faults.streams import stall

__all__ = [
    "Candidate",
    "FaultNotFired",
    "Injector",
    "On",
    "Rule",
    "device_memory",
    "disk",
    "on",
    "pinned_memory",
    "queue_limit",
    "size_limit",
    "stall",
]
