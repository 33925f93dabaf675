"""Test doubles over the model of `hipfile_sim`: drop-in packages, faults, recorder, pytest plugin.

>>> import hipfile_mock
>>> with hipfile_mock.fake(schedule="lazy"):
...     import hipfile
...
...     hipfile.Driver.use_count()
0
"""

# Nothing here may import numpy, torch, pytest or the model: this package is imported by every test session that has it.
from hipfile_mock.current import CurrentMachineError as CurrentMachineError
from hipfile_mock.current import NoMachineError as NoMachineError
from hipfile_mock.fake import Fake as Fake
from hipfile_mock.fake import Session as Session
from hipfile_mock.fake import fake as fake
from hipfile_mock.fake import install as install
from hipfile_mock.fake import session as session
from hipfile_mock.fake import uninstall as uninstall
from hipfile_mock.install import FaceUnavailable as FaceUnavailable
from hipfile_mock.stub import Stub as Stub
from hipfile_mock.stub import stub as stub
