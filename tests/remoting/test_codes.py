"""Request and response codes are those of the released jar."""

from __future__ import annotations

import json

from pymq.remoting.codes import LanguageCode, RequestCode, ResponseCode, request_name, response_name
from tests.remoting.conftest import FRAMES

CONTROLLER_INTERNAL = range(1014, 1019)  # shorts in the jar, which the recorder of ints did not see


def constants(name: str) -> dict[int, str]:
    """Names by number, recorded from the jar."""
    values = json.loads((FRAMES / name).read_text(encoding="utf-8"))
    return {int(number): text for number, text in values.items()}


def test_request_codes_are_the_jar_s():
    """Goal: no number is mistyped, none is missing. Method: compare with what reflection said of the released class."""
    ours = {code.value: code.name for code in RequestCode if code not in CONTROLLER_INTERNAL}
    assert ours == constants("request-codes.json")


def test_response_codes_are_the_jar_s():
    """Goal: as above. Method: as above."""
    on_the_wire = {code.value: code.name for code in ResponseCode if code >= 0}
    assert on_the_wire == constants("response-codes.json")


def test_codes_without_a_name_are_shown_as_numbers():
    """Goal: a log line for anything a client sends. Method: one with a name, one without."""
    assert request_name(310) == "SEND_MESSAGE_V2"
    assert request_name(31999) == "31999"
    assert response_name(2) == "SYSTEM_BUSY"
    assert response_name(-7) == "-7"
    assert LanguageCode.PYTHON == 3
