"""What runs in SGLang's interpreter, by path: weights drawn and quantized, and quantized ones read back."""
