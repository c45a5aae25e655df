"""a text -> conversations of every shape with the text in all their places.

Blind spot: it knows no template; many refuse some of these, as they should.
"""

CALL_ID = "abcdefghi"  # nine letters or digits, as Mistral's templates want it


def _call(arguments, name="look_up", id=CALL_ID):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _tool(x, name="look_up"):
    parameters = {
        "type": "object",
        "properties": {
            "word": {"type": "string", "description": x},
            "kind": {"type": "string", "enum": ["noun", x]},
            "deep": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
        "required": ["word"],
    }
    function = {"name": name, "description": f"Looks up: {x}", "parameters": parameters}
    return {"type": "function", "function": function}


def shapes(x):
    """name -> (messages, options of apply_chat_template)."""
    user, again = {"role": "user", "content": f"Q {x}"}, {"role": "user", "content": f"{x} more?"}
    system, answer = (
        {"role": "system", "content": f"{x} Be brief."},
        {"role": "assistant", "content": f"A {x}"},
    )
    thought = {"role": "assistant", "content": f"B {x}", "reasoning_content": f"R {x}\nS"}
    inline = {"role": "assistant", "content": f"<think>\nT {x}\n</think>\n\nC {x}"}
    calling = {"role": "assistant", "content": "", "tool_calls": [_call({"word": x, "n": 2})]}
    result = {
        "role": "tool",
        "content": f'{{"found": "{x}"}}',
        "name": "look_up",
        "tool_call_id": CALL_ID,
    }
    tools = {"tools": [_tool(x), _tool("plain", "other")]}
    return {
        "user": ([user], {}),
        "system": ([system, user], {}),
        "turns": ([user, answer, again], {}),
        "system turns": ([system, user, answer, again, answer, user], {}),
        "answered": ([user, answer], {"add_generation_prompt": False}),
        "reasoning": ([user, thought, again], {}),
        "reasoning at the end": ([user, thought], {"add_generation_prompt": False}),
        "thinking": ([user, {"role": "assistant", "content": x, "thinking": f"U {x}"}, again], {}),
        "inline thinking": ([user, inline, again], {}),
        "inline thinking at the end": ([user, inline], {"add_generation_prompt": False}),
        "tools": ([user], tools),
        "tools and system": ([system, user], tools),
        "call": ([user, calling], {**tools, "add_generation_prompt": False}),
        "call and result": ([user, calling, result], tools),
        "reasoned call": ([user, {**calling, "reasoning_content": f"V {x}"}, result], tools),
        "call with text": ([user, {**calling, "content": f"W {x}"}, result, answer, again], tools),
        "call in JSON": (
            [user, {**calling, "tool_calls": [_call('{"word": "w"}')]}, result],
            tools,
        ),
        "two calls": (
            [
                user,
                {
                    **calling,
                    "tool_calls": [_call({"word": x}), _call({x: [x]}, "other", "ABCDEFGHI")],
                },
                result,
                {**result, "name": "other", "tool_call_id": "ABCDEFGHI"},
            ],
            tools,
        ),
        "call without text": ([user, {**calling, "content": None}, result], tools),
        "calls of old": ([user, calling, result, answer, again], {}),
        "parts": ([{"role": "user", "content": [{"type": "text", "text": f"P {x}"}]}], {}),
        "picture": (
            [
                {
                    "role": "user",
                    "content": [{"type": "image", "image": "x.png"}, {"type": "text", "text": x}],
                }
            ],
            {},
        ),
        "empty": (
            [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, user],
            {},
        ),
        "white space": ([{"role": "user", "content": f" \n {x}\n\n "}], {}),
        "two users": ([user, again], {}),
        "only system": ([system], {}),
        "developer": ([{"role": "developer", "content": x}, user], {}),
        "no thinking": ([system, user], {"enable_thinking": False}),
        "documents": (
            [user],
            {"documents": [{"title": f"D {x}", "text": f"E {x}", "doc_id": "1"}]},
        ),
        "variables": ([user], {"date_string": x, "reasoning_effort": "high", "custom": [x]}),
    }
