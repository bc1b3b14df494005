import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn as nn

input_size, output_size, num_epochs, learning_rate = 1, 1, 60, 0.001
x_train = np.array([[3.3], [4.4], [5.5], [6.71]], dtype=np.float32)
y_train = np.array([[1.7], [2.76], [2.09], [3.19]], dtype=np.float32)

model = nn.Linear(input_size, output_size)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)

for epoch in range(num_epochs):
    inputs = torch.from_numpy(x_train)
    targets = torch.from_numpy(y_train)
    outputs = model(inputs)
    loss = criterion(outputs, targets)  # finds: L001
    optimizer.zero_grad()  # finds: O008
    loss.backward()  # finds: L010
    optimizer.step()  # finds: O007
    if (epoch + 1) % 5 == 0:
        print("Epoch [{}/{}], Loss: {:.4f}".format(epoch + 1, num_epochs, loss.item()))

predicted = model(torch.from_numpy(x_train)).detach().numpy()
plt.plot(x_train, y_train, "ro", label="Original data")
plt.plot(x_train, predicted, label="Fitted line")
torch.save(model.state_dict(), "model.ckpt")
