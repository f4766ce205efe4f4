"""Answers with the words of a text, one response for each, as a language model streams what it writes."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The parameter ``delay_ms`` of a request, 0 if it has none, is the time before each word."""

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0]
            parameters = json.loads(request.parameters())  # noqa: TID251
            delay_secs = parameters.get("delay_ms", 0) / 1000
            for place, word in enumerate(text.split()):
                time.sleep(delay_secs)
                if sender.is_cancelled():
                    break
                output = pb_utils.Tensor("WORD", np.array([word], dtype=np.object_))
                sender.send(pb_utils.InferenceResponse([output], parameters={"place": place}))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
