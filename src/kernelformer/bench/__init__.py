"""What softmax and kernel attention cost, and the report of a conversion."""
