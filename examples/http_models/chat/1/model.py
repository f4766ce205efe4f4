"""Answers HTTP requests in the form of a chat by saying the last message again: whole, or word by word.

For grps with ``customized_body: true``: a model is given the body of a request and writes that of its answer.
"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def text(name, value):
    return pb_utils.Tensor(name, np.array([value], dtype=np.object_))


def refusal(why):
    status = pb_utils.Tensor("http_status", np.array([400], dtype=np.int32))
    body = text("http_body", json.dumps({"error": {"message": why}}))
    return pb_utils.InferenceResponse([body, status, text("http_content_type", "application/json")])


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            body = pb_utils.get_input_tensor_by_name(request, "http_body").as_numpy()[0]
            for response in self.answer(body):
                sender.send(response)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def answer(self, body):
        try:
            asked = json.loads(body)  # noqa: TID251
            said = asked["messages"][-1]["content"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            yield refusal(f"the body is no chat: {error!r}")
            return
        if asked.get("stream"):
            for word in said.split():
                piece = {"choices": [{"index": 0, "delta": {"content": word}}]}
                yield pb_utils.InferenceResponse([text("http_body", f"data: {json.dumps(piece)}\n\n")])
            yield pb_utils.InferenceResponse([text("http_body", "data: [DONE]\n\n")])
            return
        whole = {"choices": [{"index": 0, "message": {"role": "assistant", "content": said}}]}
        yield pb_utils.InferenceResponse(
            [text("http_body", json.dumps(whole)), text("http_content_type", "application/json")]
        )
