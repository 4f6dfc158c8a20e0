from .log_group import encode_log as encode_log
