"""Start BFCL's command line with one more model in its registry.

Runs inside the official environment, as a script: `official_start.py SETTINGS COMMAND [ARGUMENT ...]`, where
SETTINGS is a JSON object with `registry_name`, `wire_model` and `is_fc`. It imports nothing of this suite, and changes
nothing of BFCL's but the registry, which is where BFCL's own instructions say a model is added.
"""

import json
import sys


def main() -> None:
    settings = json.loads(sys.argv[1])
    sys.argv = ["bfcl", *sys.argv[2:]]

    from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING, ModelConfig
    from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler

    MODEL_CONFIG_MAPPING[settings["registry_name"]] = ModelConfig(
        model_name=settings["wire_model"],
        display_name=settings["registry_name"],
        url="",
        org="",
        license="",
        model_handler=OpenAICompletionsHandler,
        input_price=None,
        output_price=None,
        is_fc_model=settings["is_fc"],
        underscore_to_dot=settings["is_fc"],
    )

    from bfcl_eval.__main__ import cli

    cli()


if __name__ == "__main__":
    main()
