"""keras on its torch backend: layers, a model that is trained and saved."""

import os
import tempfile

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from common import data, finish, record
from keras import layers

x, y = data(32, 8).float().numpy(), data(32, high=3).numpy()


def filled(model):
    rng = np.random.default_rng(0)
    model.set_weights(
        [rng.uniform(-0.5, 0.5, w.shape).astype("float32") for w in model.get_weights()]
    )
    return model


inputs = keras.Input((8,))
hidden = layers.LayerNormalization()(layers.Dense(16, activation="gelu")(inputs))
model = filled(keras.Model(inputs, layers.Dense(3, activation="softmax")(hidden)))
model.compile(
    optimizer=keras.optimizers.Adam(0.01),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
history = model.fit(x, y, epochs=3, batch_size=8, shuffle=False, verbose=0)
record("losses", history.history["loss"])
record("accuracy", history.history["accuracy"])
record("predict", model.predict(x, verbose=0))
record("evaluate", model.evaluate(x, y, verbose=0))
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.keras")
    model.save(path)
    record("loaded", keras.models.load_model(path).predict(x, verbose=0))
images = data(4, 8, 8, 3).float().numpy()
net = filled(
    keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.SeparableConv2D(6, 3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    )
)
record("images", net.predict(images, verbose=0))
sequence = filled(
    keras.Sequential([keras.Input((5,)), layers.Embedding(10, 4), layers.LSTM(6), layers.Dense(1)])
)
sequence.compile(optimizer="sgd", loss="mse")
tokens = data(8, 5, high=10).numpy()
history = sequence.fit(tokens, x[:8, :1], epochs=2, batch_size=4, shuffle=False, verbose=0)
record("sequence", history.history["loss"])
finish()
