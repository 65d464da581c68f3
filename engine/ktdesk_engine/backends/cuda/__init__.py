"""The operations of a layer on a GPU, with torch and Triton (the extra `gpu`). Nothing outside imports either."""
