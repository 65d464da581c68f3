"""From a model's text to reasoning, answer and tool calls, while the text still comes."""
