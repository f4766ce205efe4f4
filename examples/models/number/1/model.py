"""Reads a number: asks ``digits`` what each image shows, and joins the answers from left to right."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """A model that asks another; its coroutine may go on with more while it waits."""

    async def execute(self, requests):
        return [await self.read(request) for request in requests]

    async def read(self, request):
        images = pb_utils.get_input_tensor_by_name(request, "images").as_numpy()
        asked = pb_utils.InferenceRequest(
            model_name="digits",
            inputs=[pb_utils.Tensor("image", images)],
            requested_output_names=["label"],
        )
        answer = await asked.async_exec()
        if answer.has_error():
            return pb_utils.InferenceResponse(error=answer.error())
        labels = pb_utils.get_output_tensor_by_name(answer, "label").as_numpy()
        number = "".join(str(label) for label in labels.ravel())
        return pb_utils.InferenceResponse([pb_utils.Tensor("number", np.array([number], dtype=np.object_))])
