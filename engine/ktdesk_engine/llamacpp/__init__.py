"""Models that our engine does not know, computed by llama.cpp; requests, sampling and scheduling stay ours."""
