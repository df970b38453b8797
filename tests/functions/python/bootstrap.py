"""A Runtime API loop for a Python handler, standard library only: python3 bootstrap.py path/to/module.py

What AWS's own client (awslambdaric) does, as far as a demo needs it; the check against that client is made under AWS's emulator.
"""

import http.client
import importlib.util
import json
import os
import sys
import time
import traceback


class Context:
    """What a handler may ask of its invocation."""

    def __init__(self, headers):
        self.aws_request_id = headers["Lambda-Runtime-Aws-Request-Id"]
        self.deadline_ms = int(headers["Lambda-Runtime-Deadline-Ms"])

    def get_remaining_time_in_millis(self):
        return max(0, self.deadline_ms - int(time.time() * 1000))


def load(path):
    spec = importlib.util.spec_from_file_location("function", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


def main():
    handler = load(sys.argv[1])
    api = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    base = "/2018-06-01/runtime/invocation"
    while True:
        api.request("GET", f"{base}/next")
        event = api.getresponse()
        context = Context(event.headers)
        try:
            body, verdict = json.dumps(handler(json.load(event), context)), "response"
        except Exception as error:  # Whatever the handler raises is the function's error.
            traceback.print_exc()
            body, verdict = json.dumps({"errorType": type(error).__name__, "errorMessage": str(error)}), "error"
        api.request("POST", f"{base}/{context.aws_request_id}/{verdict}", body)
        api.getresponse().read()


main()
