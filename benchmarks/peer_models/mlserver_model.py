"""An ONNX model for MLServer, whose adaptive batching hands it a batch as one request.

It runs in MLServer's environment, which has none of this project.
"""

import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from mlserver.utils import get_model_uri


class OnnxModel(MLModel):
    """What MLServer asks for."""

    async def load(self):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file = await get_model_uri(self.settings)
        self._session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        return True

    async def predict(self, payload):
        inputs = {given.name: NumpyCodec.decode_input(given) for given in payload.inputs}
        results = self._session.run(self._names, inputs)
        outputs = [
            NumpyCodec.encode_output(name, array) for name, array in zip(self._names, results, strict=True)
        ]
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=outputs)
