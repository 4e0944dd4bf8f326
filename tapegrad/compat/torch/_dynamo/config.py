"""Settings of Dynamo that packages assign; they have no effect."""

suppress_errors = False
cache_size_limit = 8
recompile_limit = 8
accumulated_cache_size_limit = 256
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
inline_inbuilt_nn_modules = True
optimize_ddp = True
verbose = False
