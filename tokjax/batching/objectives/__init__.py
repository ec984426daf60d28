"""What a model is trained to say: inputs and labels as pure functions of arrays and of random draws."""
