"""check_feature_map(fm): the contract as a test, for this project and for yours."""
