"""Names in DuckDB's syntax trees that :mod:`.tree` allows in SQL and SPL.

A name that is not listed is refused, whatever a later version of DuckDB adds under it. A list has functions that
compute a value from their arguments. It has none that run text as SQL, read files, settings, variables or the catalog,
write (to a log, a sequence), wait, inspect the database, or make types from text.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Query nodes, table references, modifiers, and the orders of a sort.
NODES = _names(
    """
    SELECT_NODE SET_OPERATION_NODE RECURSIVE_CTE_NODE CTE_NODE
    BASE_TABLE EMPTY EXPRESSION_LIST JOIN PIVOT SUBQUERY TABLE_FUNCTION
    DISTINCT_MODIFIER LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER ORDER_MODIFIER
    ASCENDING DESCENDING ORDER_DEFAULT
    """
)

#: Classes of expressions in SPL.
SPL_CLASSES = _names(
    "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA OPERATOR TYPE"
)

#: Classes of expressions in SQL.
SQL_CLASSES = SPL_CLASSES | {"POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "WINDOW"}

TABLE_FUNCTIONS = _names("generate_series json_each json_tree range unnest")

#: Types of a cast, in lower case.
TYPES = _names(
    """
    array bigint binary bit bitstring blob bool boolean bpchar bytea char date datetime dec decimal double enum float
    float4 float8 hugeint int int1 int128 int16 int2 int32 int4 int64 int8 integer integral interval json list logical
    long map nvarchar null numeric oid real row short signed smallint string struct text time timestamp timestamp_ms
    timestamp_ns timestamp_s timestamp_us timestamptz timetz tinyint ubigint uhugeint uint128 uint16 uint32 uint64 uint8
    uinteger union usmallint utinyint uuid varbinary varchar
    """
) | {"time with time zone", "timestamp with time zone"}

_OPERATORS = "!__postfix !~~ !~~* % & && * ** + - ->> / // < <-> <=> << <@ >> @ @> ^ ^@ | || ~ ~~ ~~* ~~~"

_WINDOWS = (
    "cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense row_number"
)

_AGGREGATES = """
    any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last
    arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg bool_and
    bool_or corr count count_if count_star countif covar_pop covar_samp entropy favg first fsum geomean geometric_mean
    group_concat histogram histogram_exact kahan_sum kurtosis kurtosis_pop last list listagg mad max max_by mean median
    min min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop stddev_samp string_agg sum
    sumkahan var_pop var_samp variance wavg weighted_avg json_group_array json_group_object json_group_structure
"""

_NUMBERS = """
    abs acos acosh add asin asinh atan atan2 atanh bin bit_count bit_length bit_position bitstring cbrt ceil ceiling cos
    cosh cot degrees divide equi_width_bins even exp factorial fdiv floor fmod gamma gcd get_bit greatest
    greatest_common_divisor isfinite isinf isnan lcm least least_common_multiple lgamma ln log
    log10 log2 mod multiply nextafter pi pow power radians random round round_even roundbankers set_bit sign signbit sin
    sinh sqrt subtract tan tanh trunc xor
"""

_TEXT = """
    array_extract ascii bar base64 char_length character_length chr concat concat_ws contains damerau_levenshtein decode
    editdist3 encode ends_with format formatreadabledecimalsize formatreadablesize format_bytes from_base64 from_binary
    from_hex hamming hash hex instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme len length
    length_grapheme levenshtein ilike_escape like_escape not_ilike_escape not_like_escape lower lpad ltrim md5
    md5_number md5_number_lower md5_number_upper mismatches nfc_normalize octet_length ord overlay parse_dirname
    parse_dirpath parse_filename parse_formatted_bytes parse_path path_join position prefix printf regexp_escape
    regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array
    regexp_split_to_table repeat replace reverse right right_grapheme rpad rtrim sha1 sha256 split split_part
    starts_with str_split str_split_regex string_split string_split_regex string_to_array strip_accents strlen strpos
    substr substring substring_grapheme suffix to_base to_base64 to_binary to_hex translate trim ucase unbin unhex
    unicode upper url_decode url_encode
"""

_TIMES = """
    age ago century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname
    dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era get_current_time
    get_current_timestamp current_date current_localtime current_localtimestamp hour isodow isoyear julian last_day
    make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz microsecond millennium
    millisecond minute month monthname nanosecond normalized_interval now quarter second strftime strptime time_bucket
    timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds to_millennia
    to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today
    transaction_timestamp try_strptime week weekday weekofyear year yearweek
"""

_NESTED = """
    apply array_append array_apply array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct array_dot_product
    array_filter array_grade_up array_has array_has_all array_has_any array_indexof array_inner_product array_intersect
    array_length array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front array_position
    array_prepend array_push_back array_push_front array_reduce array_resize array_reverse array_reverse_sort
    array_select array_slice array_sort array_to_string array_to_string_comma_default array_transform array_unique
    array_value array_where array_zip cardinality element_at enum_code enum_first enum_last enum_range
    enum_range_boundary filter flatten generate_series grade_up list_any_value list_append
    list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or
    list_cat list_concat list_contains list_cosine_distance list_cosine_similarity list_count list_distance
    list_distinct list_dot_product list_element list_entropy list_extract list_filter list_first list_grade_up list_has
    list_has_all list_has_any list_histogram list_indexof list_inner_product list_intersect list_kurtosis
    list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode list_negative_dot_product
    list_negative_inner_product list_pack list_position list_prepend list_product list_reduce list_resize list_reverse
    list_reverse_sort list_select list_sem list_skewness list_slice list_sort list_stddev_pop list_stddev_samp
    list_string_agg list_sum list_transform list_unique list_value list_var_pop list_var_samp list_where list_zip map
    map_concat map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value
    map_from_entries map_keys map_values range reduce row struct_concat struct_contains struct_extract struct_extract_at
    struct_has struct_indexof struct_insert struct_keys struct_pack struct_position struct_update struct_values
    union_extract union_tag union_value unnest unpivot_list
"""

_JSON = """
    array_to_json json json_array json_array_length json_contains json_deep_merge json_exists json_extract
    json_extract_path json_extract_path_text json_extract_string json_insert json_keys json_merge_patch
    json_merge_patch_diff json_normalize json_object json_pretty json_quote json_remove json_replace json_set
    json_strip_nulls json_structure json_type json_valid json_value row_to_json to_json
"""

_OTHERS = """
    error gen_random_uuid if nullif pg_typeof switch typeof uuid
    uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7
"""

#: Functions of times that also take seconds since 1970, as ``__time__`` is, and whose times have no zone.
MACROS = (
    "as_timestamp(t) AS COALESCE(make_timestamp(TRY_CAST(t AS BIGINT) * 1000000), TRY_CAST(t AS TIMESTAMP))",
    "from_unixtime(t) AS make_timestamp(CAST(CAST(t AS DOUBLE) * 1000000 AS BIGINT))",
    "date_trunc(p, t) AS system.main.date_trunc(p, as_timestamp(CAST(t AS VARCHAR)))",
)

#: Scalar functions, aggregates and window functions, in lower case.
FUNCTIONS = _names(" ".join((_OPERATORS, _WINDOWS, _AGGREGATES, _NUMBERS, _TEXT, _TIMES, _NESTED, _JSON, _OTHERS))) | {
    macro.partition("(")[0] for macro in MACROS
}
