"""Compile a step's script with the code that calls it, and report its errors in one line."""

import re

import starlark

from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.settings import Text

# Starlark asks whether to stop about once every thousand instructions; this is how often it may
# ask for each MiB of a call's input. The limit counts
# instructions, not time: the same call must end the same way when its batch is run again.
CHECKS = 2_000

# The extensions of Starlark that scripts get: no load, no print, no clock, no randomness.
_GLOBALS = starlark.Globals.extended_by(
    [starlark.LibraryExtension.StructType, starlark.LibraryExtension.Json]
)

# Runs before each script, so that the script may use these names for its own things.
_OURS = "dovecote"
_BEFORE = """
dovecote_json, dovecote_struct, dovecote_type = json, struct, type
dovecote_len, dovecote_str, dovecote_range = len, str, range
dovecote_fail, dovecote_dir, dovecote_getattr, dovecote_enumerate = fail, dir, getattr, enumerate

def dovecote_given(given):
    return dovecote_json.decode(given) if dovecote_type(given) == "string" else given

# JSON has no NaN and no infinity, and the encoder writes null for them.
def dovecote_encoded(name, answer):
    text = dovecote_json.encode(answer)
    if "null" not in text:
        return text
    shown = dovecote_str(answer)
    if "nan" not in shown and "inf" not in shown:
        return text
    left = [("", each) for each in answer]
    for _ in dovecote_range(1000000000):
        if not left:
            break
        path, value = left.pop()
        kind = dovecote_type(value)
        if kind == "float" and value - value != 0.0:
            dovecote_fail("%s is %s, a number that JSON cannot hold" % (path or name, value))
        elif kind == "dict":
            left.extend([(("%s.%s" if path else "%s%s") % (path, n), v) for n, v in value.items()])
        elif kind == "struct":
            fields = [(n, dovecote_getattr(value, n)) for n in dovecote_dir(value)]
            left.extend([(("%s.%s" if path else "%s%s") % (path, n), v) for n, v in fields])
        elif kind == "list" or kind == "tuple":
            left.extend([("%s[%s]" % (path, n), v) for n, v in dovecote_enumerate(value)])
    return text
"""

# The last lines of every script: from JSON, or from the objects themselves, to the arguments, and
# back.
_ONE = """
def dovecote_call(given):
    p = dovecote_given(given)
    env = dovecote_struct(
        SourceTopic=p["t"], SourceKey=p["k"], kafka=dovecote_struct(headers=p["h"]), cache=p["c"],
        TriggerFireMs=p["now"], loadedVariables=dovecote_variables,
    )
    found = {name}(p["in"], env)
    return dovecote_encoded("the answer", [dovecote_type(found), found, p["c"]])
"""
_KEYS = """
def dovecote_call(given):
    all = []
    for p in dovecote_given(given):
        env = dovecote_struct(
            SourceTopic=p["t"], SourceKey=p["k"], kafka=dovecote_struct(headers=p["h"]),
            cache=p["c"],
            TriggerFireMs=p["now"], loadedVariables=dovecote_variables,
        )
        found = {name}(p["in"], env)
        kind = dovecote_type(found)
        all.append([kind, dovecote_str(found) if kind == "int" else found])
    return dovecote_encoded("the answer", all)
"""
_FOLD = """
def dovecote_call(given):
    p = dovecote_given(given)
    env = dovecote_struct(
        SourceTopic=p["t"], SourceKey=p["k"], kafka=dovecote_struct(headers=p["h"]), cache=p["c"],
        loadedVariables=dovecote_variables, AggregationKey=p["w"], AggregationEventCount=p["n"],
    )
    found = fold(p["acc"], p["in"], env)
    return dovecote_encoded("the answer", [dovecote_type(found), found, p["c"]])
"""
_MANY = """
def dovecote_call(given):
    p = dovecote_given(given)
    env = dovecote_struct(
        sources=[
            dovecote_struct(SourceTopic=s[0], SourceKey=s[1], kafka=dovecote_struct(headers=s[2]))
            for s in p["sources"]
        ],
        cache=p["c"], loadedVariables=dovecote_variables, AggregationKey=p["k"],
        AggregationWindowTimeMs=p["age"], AggregationEventCount=p["n"],
    )
    found = {name}(p["in"], env)
    return dovecote_encoded("the answer", [dovecote_type(found), found, p["c"]])
"""
_CALLS = {"aggregate": _MANY, "key": _KEYS, "fold": _FOLD}


def compiled(text: Text, name: str, variables: str) -> starlark.FrozenModule:
    """
    Return a script whose `dovecote_call` calls its function `name`.

    Raises:
        BadSettings: the script cannot be compiled, or lacks that function.
    """
    # After the script, so that its lines keep their numbers.
    call = _CALLS.get(name, _ONE).replace("{name}", name)
    try:
        module = starlark.Module()
        module["dovecote_text"] = variables
        starlark.eval(module, starlark.parse(_OURS, _BEFORE), _GLOBALS)
        own = starlark.parse(text.path, text.text, starlark.Dialect.extended())
        starlark.eval(module, own, _GLOBALS)
        _require_function(module, text.path, name)
        rest = f"dovecote_variables = dovecote_json.decode(dovecote_text)\n{call}"
        starlark.eval(module, starlark.parse(text.path, rest), _GLOBALS)
        return module.freeze()
    except BadSettings:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            msg = f"script {text.path}: {reason(error)}"
            raise BadSettings(msg) from error
        raise


def _require_function(module: starlark.Module, path: str, name: str) -> None:
    """Report a missing function, rather than an error in our lines that need it."""
    near = None
    try:
        kind = starlark.eval(module, starlark.parse(path, f"dovecote_type({name})"), _GLOBALS)
    except starlark.StarlarkError as error:
        kind, near = None, re.search(r"did you mean (`\w+`)", str(error))
    if kind != "function":
        hint = "" if near is None else f", but {near[1]}"
        also = ", nor a `def fold(acc, IN, Env)`" if name == "aggregate" else ""
        msg = f"script {path}: there is no `def {name}(IN, Env)` in it{also}{hint}"
        raise BadSettings(msg)


def reason(error: BaseException) -> str:
    """Return the one line of Starlark's report that names the error and its place."""
    text = str(error)
    found = re.search(r"^error: (.*?)(?:, expected one of .*)?$", text, re.MULTILINE)
    place = re.search(r"^\s*--> (\S+)$", text, re.MULTILINE)
    what = found[1] if found else text.partition("\n")[0] or type(error).__name__
    if what == "Evaluation cancelled":
        what = f"ended after {CHECKS},000 instructions: is there a loop without an end?"
    if place and place[1].startswith(f"{_OURS}:"):  # no line of the script
        return what.removeprefix("fail: ")
    return f"{what} ({place[1]})" if place else what
